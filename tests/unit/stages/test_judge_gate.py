"""The gate before calibration: a judge that turns with what means nothing is refused before the pools are judged."""

import itertools

import pytest

from rangeline.errors import JudgeUnreliableError
from rangeline.judge.cache import VerdictCache
from rangeline.judge.client import ScriptedJudge
from rangeline.judge.judgment import Limits
from rangeline.judge.rubric import parse_rubric
from rangeline.judge_config import JudgeLimitsConfig
from rangeline.stages.judge_gate import gate_judge
from rangeline.stages.judging import FrozenJudge

SHOWN = [("P", f"c{i}", "") for i in range(40)]
LIMITS = JudgeLimitsConfig()


def gated(reply, tmp_path, *, gives="picks", question="{completion} Right?", limits=LIMITS):
    """Gate a scripted judge; return what was measured and how often it was asked."""
    text = f"name: r\ncoordinates: [{{name: right, kind: choice, question: '{question}', options: {{no: N, yes: Y}}}}]"
    judge = ScriptedJudge(reply)
    judge.gives = gives
    frozen = FrozenJudge(parse_rubric(text, source="r"), judge, VerdictCache(tmp_path / "v.sqlite"), Limits())
    return gate_judge(frozen, SHOWN, limits), len(judge.asked)


def by_content(request):
    """Read the completion alone."""
    right = "N" if "c1" in request.question else "Y"
    if request.options == ("A", "B"):
        return tuple(float(f"{letter}) {right}" in request.question) for letter in request.options)
    return tuple(float(option == right) for option in request.options)


def test_a_steady_judge_passes(tmp_path):
    """What was measured is returned, for the manifest, on a few rollouts only."""
    found, asked = gated(by_content, tmp_path)
    assert {"right": {kind: {"share": 0.0, "pairs": 16} for kind in ("repeat", "order", "position")}} == found
    assert 6 * 16 == asked


def test_a_judge_of_order_is_refused(tmp_path):
    """Who takes the first reply of the list turns on every rollout, which the gate catches."""

    def first(request):
        listed = request.question.split("one of: ")[-1]
        return tuple(-float(listed.find(option)) for option in request.options)

    with pytest.raises(JudgeUnreliableError, match=r"'right' must turn for at most a share of 0.5 .*got 1.000 of 16"):
        gated(first, tmp_path)


def test_a_judge_of_letters_is_refused(tmp_path):
    """Who always writes the first letter has no verdict, which the gate catches."""

    def first_letter(request):
        return (0.0, -1.0) if request.options == ("A", "B") else by_content(request)

    with pytest.raises(JudgeUnreliableError, match=r"when its replies change letters; got 1.000 of 16"):
        gated(first_letter, tmp_path)


def test_a_fickle_judge_is_refused(tmp_path):
    """Who says another thing when asked again is refused, whatever it is asked by."""
    turn = itertools.count()
    with pytest.raises(JudgeUnreliableError, match=r"a share of 0.2 when it is asked again; got 1.000 of 16"):
        gated(lambda _: (0.0, -1.0) if next(turn) < 16 else (-1.0, 0.0), tmp_path, gives="logprobs")


def test_an_order_that_is_never_shown_is_not_asked_about(tmp_path):
    """Log-probabilities of replies that no question lists have no order to turn with; listed ones have."""
    plain, _ = gated(by_content, tmp_path, gives="logprobs")
    listed, _ = gated(by_content, tmp_path, gives="logprobs", question="{completion} Reply {options}")
    assert (["repeat"], ["repeat", "order"]) == (list(plain["right"]), list(listed["right"]))


def test_no_rollouts_are_no_gate(tmp_path):
    """The gate may be switched off, and then asks nothing."""
    assert ({}, 0) == gated(by_content, tmp_path, limits=JudgeLimitsConfig(gate_rollouts=0))
