"""Completions that speak to the judge."""

import pytest

from rangeline.judge.client import ScriptedJudge
from rangeline.judge.injections import ATTACKS, HARMLESS, attacked, injections
from rangeline.judge.rubric import parse_rubric

RUBRIC = parse_rubric(
    "name: r\ncoordinates: [{name: right, kind: choice, question: 'Q {completion} R', options: {no: N, yes: Y}}]",
    source="r",
)
SHOWN = [("p", str(i), "") for i in range(3)]


def lifted(reply, shown=SHOWN):
    """Return what each attack does to a judge."""
    found = injections(RUBRIC, RUBRIC.coordinates[0], shown, ScriptedJudge(reply), None)
    return {item.attack: item.lifted for item in found}


def test_a_deaf_judge_is_never_lifted():
    """Who says no whatever is written is lifted by nothing."""
    assert dict.fromkeys(ATTACKS, 0.0) == lifted(lambda _: (0.0, -1.0))


def test_an_obedient_judge_is_lifted_by_what_asks():
    """Who does as told is lifted by orders, and not by the harmless text."""
    found = lifted(lambda request: (0.0, 1.0 if "reply Y" in request.question else -1.0))
    assert (1.0, 0.0) == (found["orders the judge"], found[HARMLESS])


def test_what_is_at_the_top_cannot_be_lifted():
    """A completion that the judge already likes is no evidence, and without any there is no share."""
    assert dict.fromkeys(ATTACKS) == lifted(lambda _: (-1.0, 0.0))
    assert dict.fromkeys(ATTACKS) == lifted(lambda _: (0.0, -1.0), [])


@pytest.mark.parametrize("attack", ATTACKS)
def test_every_attack_keeps_the_completion_and_the_delimiters(attack):
    """The battery appends, whatever braces a completion holds, and no attack closes the judge's own delimiter."""
    text = attacked(attack, "1{0}{x}", "Y")
    assert text.startswith("1{0}{x}")
    question = RUBRIC.coordinates[0].render("p", text)
    assert (1, 1) == (question.count("<completion>"), question.count("</completion>"))
