"""Verdicts that turn with the order of replies, with letters, and from call to call."""

import itertools

from rangeline.judge.client import ScriptedJudge
from rangeline.judge.probes import Flips, order_flips, position_flips, repeat_flips
from rangeline.judge.rubric import parse_rubric

SHOWN = [("P", str(i), "") for i in range(4)]


def rubric(question="{prompt} {completion} Right?"):
    """Return a rubric of one choice."""
    text = f"name: r\ncoordinates: [{{name: right, kind: choice, question: '{question}', options: {{no: N, yes: Y}}}}]"
    return parse_rubric(text, source="r")


def flips(probe, reply, question="{prompt} {completion} Right?", **options):
    """Measure a scripted judge."""
    one = rubric(question)
    judge = ScriptedJudge(reply)
    return probe(one, one.coordinates[0], SHOWN, judge, **options), judge


def likes_the_first(request):
    """Prefer whichever reply the question lists first."""
    last = request.question.rstrip(".").split("one of: ")[-1]
    return tuple(-float(last.index(option)) for option in request.options)


def test_a_judge_of_content_never_turns():
    """Order, letters and company mean nothing to a judge that reads the completion."""

    def by_content(request):
        right = "Y" if "\n2\n" in request.question else "N"
        if request.options == ("A", "B"):
            return tuple(float(f"{letter}) {right}" in request.question) for letter in request.options)
        return tuple(float(option == right) for option in request.options)

    for probe in (order_flips, position_flips):
        assert Flips(0.0, 4, 4) == flips(probe, by_content, cache=None)[0]
    assert Flips(0.0, 4, 4) == flips(repeat_flips, by_content)[0]


def test_a_judge_of_order_always_turns():
    """Replies are appended in both orders, and who takes the first of them turns every time."""
    found, judge = flips(order_flips, likes_the_first, cache=None)
    assert Flips(1.0, 4, 4) == found
    assert {"N, Y.", "Y, N."} == {request.question.split("one of: ")[1] for request in judge.asked}


def test_a_question_that_lists_its_replies_is_asked_as_it_is():
    """Where the rubric shows the replies, its own two orders are compared."""
    _, judge = flips(order_flips, lambda _: (-1.0, -2.0), "{completion} Reply {options}", cache=None)
    assert {"Reply N or Y", "Reply Y or N"} == {request.question.split("</completion> ")[1] for request in judge.asked}


def test_a_judge_of_letters_always_turns():
    """Who always says A has said both replies once the letters changed places."""
    found, judge = flips(position_flips, lambda request: (0.0, -1.0), cache=None)
    assert Flips(1.0, 4, 4) == found
    assert {("A", "B")} == {request.options for request in judge.asked}


def test_ties_and_failures_are_no_pairs():
    """A rollout without two verdicts is left out, and with none the share is undefined, not 0."""
    assert Flips(None, 0, 4) == flips(order_flips, lambda _: (-1.0, -1.0), cache=None)[0]


def test_a_fickle_judge_turns_when_asked_again():
    """The second time is past the cache."""
    turn = itertools.count()
    found, _ = flips(repeat_flips, lambda _: (0.0, -1.0) if next(turn) < 4 else (-1.0, 0.0))
    assert Flips(1.0, 4, 4) == found
