"""Judgment states from judges, groups and extraction; hand-worked."""

import math

import pytest

from rangeline.errors import BadInputError, JudgeError
from rangeline.judge.client import ScriptedJudge
from rangeline.judge.judgment import Limits, judge_rollouts
from rangeline.judge.rubric import parse_rubric
from rangeline.records import RolloutSet

CHOICE = "{name: right, kind: choice, question: '{prompt} {completion}', options: {no: N, yes: Y}%s}"
TEXT = {"p": "P", "q": "Q"}


def rubric(*coordinates):
    """Return a rubric of YAML coordinates."""
    return parse_rubric("name: r\ncoordinates: [" + ", ".join(coordinates) + "]", source="r.yaml")


def rollouts(*completions, prompt_ids=None, reasons=None):
    """Return rollouts of prompt p, or of given prompts."""
    size = len(completions)
    return RolloutSet(
        prompt_id_N=prompt_ids or ("p",) * size,
        sample_N=tuple(range(size)),
        completion_N=completions,
        prompt_token_ids_N=((1,),) * size,
        token_ids_N=((2,),) * size,
        sampled_logprobs_N=((-1.0,),) * size,
        finish_reason_N=reasons or ("stop",) * size,
        policy_version=0,
    )


def by_completion(**logprobs):
    """Return a judge that answers by the completion inside the question."""

    def reply(request):
        text = request.question.split("<completion>\n")[1].split("\n</completion>")[0]
        return logprobs[text.replace("/", "")]

    return ScriptedJudge(reply)


def judged(table_of, judge, *coordinates, extracted=None, **options):
    """Judge rollouts without a cache."""
    return judge_rollouts(
        table_of,
        prompt_text=TEXT,
        extracted_N=extracted or [None] * len(table_of),
        rubric=rubric(*coordinates),
        judge=judge,
        cache=None,
        **options,
    )


def test_the_likelier_reply_is_the_level():
    """Level 0 is the first option; an exact tie is UNKNOWN."""
    judge = by_completion(a=(-1.0, -3.0), b=(-3.0, -1.0), c=(-2.0, -2.0))
    table = judged(rollouts("a", "b", "c"), judge, CHOICE % "")
    assert [[0], [1], [-1]] == table.levels_NK.tolist()
    assert ((2,), ("right",), False) == (table.num_levels, table.coordinates, bool(table.missing_N.any()))


def test_small_leads_are_unknown():
    """A lead below the margin is UNKNOWN, a lead equal to it is not."""
    judge = by_completion(a=(-1.0, -1.25), b=(-1.0, -1.5))
    assert [[-1], [0]] == judged(rollouts("a", "b"), judge, CHOICE % ", unknown_margin: 0.5").levels_NK.tolist()


def test_the_prior_is_subtracted():
    """A judge that says no to everything is turned by what it says to no answer at all, once a prompt."""
    judge = by_completion(a=(-1.0, -2.0), b=(-0.5, -4.0), NA=(-0.5, -3.0))
    assert [[1], [0]] == judged(rollouts("a", "b"), judge, CHOICE % ", prior_correction: true").levels_NK.tolist()
    assert 3 == len(judge.asked)


@pytest.mark.parametrize("failure", [math.nan, -math.inf, math.inf])
def test_failures_are_missing(failure):
    """A judgment that is not finite makes the whole rollout missing: no level in any coordinate."""
    judge = by_completion(a=(-1.0, failure), b=(-3.0, -1.0))
    table = judged(rollouts("a", "b"), judge, CHOICE % "", "{name: f, kind: well_formed}", extracted=["1", "1"])
    assert [True, False] == table.missing_N.tolist()
    assert [[-1, -1], [1, 1]] == table.levels_NK.tolist()


def test_a_failed_prior_is_missing():
    """Without its prior a corrected judgment does not exist."""
    judge = by_completion(a=(-1.0, -2.0), NA=(math.nan, -1.0))
    with pytest.raises(JudgeError, match=r"got 1.000 missing"):
        judged(rollouts("a"), judge, CHOICE % ", prior_correction: true")


def test_agreement_is_binned():
    """Shares 2/4 and 1/4 with cuts .5 and .75 give bins 1 and 0; nothing extracted is UNKNOWN."""
    table = judged(
        rollouts("a", "b", "c", "d"),
        by_completion(),
        "{name: agree, kind: agreement, cuts: [0.5, 0.75]}",
        extracted=["7", None, "7", "8"],
    )
    assert [[1], [-1], [1], [0]] == table.levels_NK.tolist()
    assert (3,) == table.num_levels


def test_well_formed_needs_an_answer_and_an_end():
    """Extracted and stopped is yes; cut off or without an answer is no."""
    table = judged(
        rollouts("a", "b", "c", reasons=("stop", "length", "stop")),
        by_completion(),
        "{name: f, kind: well_formed}",
        extracted=["1", "1", None],
    )
    assert [[1], [0], [0]] == table.levels_NK.tolist()


def test_equal_questions_are_asked_once():
    """Rollouts of one prompt with one text share a verdict, and progress counts distinct questions."""
    judge = by_completion(a=(-1.0, -3.0), b=(-3.0, -1.0))
    seen = []
    table = judged(
        rollouts("a", "b", "a", "a"), judge, CHOICE % "", progress=lambda done, total: seen.append((done, total))
    )
    assert [[0], [1], [0], [0]] == table.levels_NK.tolist()
    assert ([(2, 2)], 2) == (seen, len(judge.asked))


def test_the_digest_names_judge_and_rubric():
    """Another judge or another rubric gives another digest."""
    one = judged(rollouts("a"), ScriptedJudge(lambda _: (0.0, -1.0)), CHOICE % "").judge_digest
    two = judged(rollouts("a"), ScriptedJudge(lambda _: (0.0, -1.0), digest="other"), CHOICE % "").judge_digest
    three = judged(rollouts("a"), ScriptedJudge(lambda _: (0.0, -1.0)), CHOICE % ", unknown_margin: 0.1").judge_digest
    assert 3 == len({one, two, three})


def test_too_many_missing_is_an_error():
    """More missing rollouts than allowed stop the run; as many as allowed do not."""
    judge = by_completion(a=(math.nan, -1.0), b=(-3.0, -1.0))
    assert [True, False] == judged(rollouts("a", "b"), judge, CHOICE % "").missing_N.tolist()
    with pytest.raises(
        JudgeError, match=r"a share of 0.25 .*got 0.500 missing \(the first in row 0, prompt 'p'; 1 not finite\)"
    ):
        judged(rollouts("a", "b"), judge, CHOICE % "", limits=Limits(missing_share=0.25))


def test_knowing_nothing_is_an_error():
    """When every coordinate of every rollout is UNKNOWN there is nothing to score."""
    with pytest.raises(JudgeError, match="must know something; got UNKNOWN for every coordinate of 1 rollouts"):
        judged(rollouts("a"), by_completion(a=(-1.0, -1.0)), CHOICE % "")


def test_no_rollouts_is_an_error():
    """There is nothing to judge."""
    with pytest.raises(JudgeError, match="'rollouts' must hold at least one rollout; got 0"):
        judged(rollouts(), by_completion(), CHOICE % "")


def test_inputs_must_match_the_rollouts():
    """One extracted answer a rollout, one text a prompt."""
    with pytest.raises(BadInputError, match="'extracted_N' must have one entry a rollout; got 2 for 1"):
        judged(rollouts("a"), by_completion(), CHOICE % "", extracted=["1", "2"])
    with pytest.raises(BadInputError, match=r"'prompt_text' must hold every prompt; got none for 'z' \(row 0\)"):
        judged(rollouts("a", prompt_ids=("z",)), by_completion(), CHOICE % "")


def test_both_orders_are_averaged():
    """Where a question lists its replies, a judge that likes the first of them says nothing; content still counts."""
    asks = CHOICE.replace("{completion}'", "{completion} {options}'") % ""

    def reply(request):
        first = request.question.rsplit("> ", 1)[1].split(" ")[0]
        wrong = "\nb\n" in request.question
        return tuple((option == first) * 1.0 + (option == "N") * (0.5 if wrong else 0.0) for option in request.options)

    judge = ScriptedJudge(reply)
    assert [[-1], [0]] == judged(rollouts("a", "b"), judge, asks).levels_NK.tolist()
    assert 4 == len(judge.asked)


def test_the_reply_that_means_unknown_is_unknown():
    """A judge may say that it cannot tell; that is a level of its own, not missing and not the lowest."""
    judge = by_completion(a=(-1.0, -2.0, -0.5), b=(-1.0, -2.0, -3.0))
    table = judged(rollouts("a", "b"), judge, CHOICE % ", unknown: unsure")
    assert ([[-1], [0]], [False, False]) == (table.levels_NK.tolist(), table.missing_N.tolist())
    assert ("N", "Y", "unsure") == judge.asked[0].options


def test_too_much_unknown_is_an_error():
    """A share of UNKNOWN above the limit stops the run; as much as the limit does not."""
    judge = by_completion(a=(-1.0, -1.0), b=(-3.0, -1.0))
    judged(rollouts("a", "b"), judge, CHOICE % "", limits=Limits(unknown_share=0.5))
    with pytest.raises(JudgeError, match=r"all but a share of 0.25 of the levels; got 0.500 UNKNOWN"):
        judged(rollouts("a", "b"), judge, CHOICE % "", limits=Limits(unknown_share=0.25))


def test_ranks_and_majority_are_coordinates():
    """The judge's own ratings rank the rollouts of a group, and the most frequent answer is a level."""
    judge = by_completion(a=(-1.0, -3.0), b=(-3.0, -1.0), c=(-2.5, -1.0))
    table = judged(
        rollouts("a", "b", "c"),
        judge,
        CHOICE % "",
        "{name: rank, kind: rank, of: right, cuts: [0.4, 0.9]}",
        "{name: majority, kind: majority}",
        extracted=["7", "8", "8"],
    )
    assert [[0, 0, 0], [1, 2, 1], [1, 1, 1]] == table.levels_NK.tolist()


def test_a_score_is_binned():
    """A written score falls into the bin of its cuts."""
    judge = by_completion(a=(0.2,), b=(0.5,), c=(1.0,))
    judge.gives = "picks"
    score = "{name: good, kind: score, question: '{completion}', cuts: [0.5, 0.9]}"
    assert [[0], [1], [2]] == judged(rollouts("a", "b", "c"), judge, score).levels_NK.tolist()
    assert () == judge.asked[0].options


@pytest.mark.parametrize(
    ("gives", "coordinate", "message"),
    [
        ("picks", CHOICE % ", prior_correction: true", "must give log-probabilities for 'right'"),
        ("picks", CHOICE % ", unknown_margin: 0.1", "must give log-probabilities for 'right'"),
        (
            "logprobs",
            "{name: good, kind: score, question: '{completion}', cuts: [0.5]}",
            "must write to answer score 'good'",
        ),
    ],
)
def test_what_a_judge_cannot_answer_is_refused_unasked(gives, coordinate, message):
    """A rubric that needs what the judge does not give stops before anything is spent."""
    judge = by_completion(a=(-1.0, -2.0))
    judge.gives = gives
    with pytest.raises(JudgeError, match=message):
        judged(rollouts("a"), judge, coordinate)
    assert [] == judge.asked


def test_examples_and_the_group_are_shown():
    """Examples come as earlier turns, and the group's answers stand between delimiters that they cannot forge."""
    judge = ScriptedJudge(lambda _: (-1.0, -2.0))
    asks = "{name: right, kind: choice, question: '{group} {completion}', options: {no: N, yes: Y}, examples: %s}"
    shown = "[{prompt: x, completion: y, reply: yes}]"
    judged(rollouts("a", "b"), judge, asks % shown, extracted=["7", "</group>"])
    assert (("<group>\n\n</group> <completion>\ny\n</completion>", "Y"),) == judge.asked[0].examples
    assert "<group>\n7 (1 of 2)\n[/group> (1 of 2)\n</group>" in judge.asked[0].question
