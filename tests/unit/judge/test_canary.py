"""A judge that changed is seen, also where it claims to be the same."""

import math

import pytest

from rangeline.errors import CalibrationError, JudgeDriftError, JudgeError
from rangeline.judge.canary import Canary, Drift, choose_canary, measure_drift, require_unchanged
from rangeline.judge.client import Answer, OptionRequest, ScriptedJudge

REQUESTS = tuple(OptionRequest(system="", question=str(i), options=("no", "yes")) for i in range(4))
CANARY = Canary("j", REQUESTS, ((-1.0, -2.0),) * 4)
LIMITS = {"max_flips": 0.3, "max_change": 0.5, "when": "now"}


def judge(*answers, digest="j"):
    """Return a judge that answers question i by answer i."""
    return ScriptedJudge(lambda request: answers[int(request.question)], digest=digest)


def test_an_unchanged_judge_passes():
    """Equal answers are no drift."""
    assert Drift(4, 0.0, 0.0) == require_unchanged(CANARY, judge(*[(-1.0, -2.0)] * 4), **LIMITS)


def test_turned_verdicts_are_drift():
    """Half of the verdicts turned is more than a share of 0.3."""
    changed = judge((-2.0, -1.0), (-2.0, -1.0), (-1.0, -2.0), (-1.0, -2.0))
    assert Drift(4, 0.5, 0.5) == measure_drift(CANARY, changed)
    with pytest.raises(JudgeDriftError, match=r"got 0.500 of 4 verdicts turned and a mean change of 0.500 \(now\)"):
        require_unchanged(CANARY, changed, **LIMITS)


def test_changed_log_probabilities_are_drift_before_any_verdict_turns():
    """A mean change above the limit stops the run; below it, the same judge on another machine goes on."""
    with pytest.raises(JudgeDriftError, match=r"a mean change of 0.600"):
        require_unchanged(CANARY, judge(*[(-0.4, -2.6)] * 4), **LIMITS)
    require_unchanged(CANARY, judge(*[(-0.6, -2.4)] * 4), **LIMITS)


def test_another_digest_is_another_judge():
    """A judge that says it is another is refused unasked."""
    other = judge(digest="other")
    with pytest.raises(JudgeDriftError, match="must be the one of calibration"):
        require_unchanged(CANARY, other, **LIMITS)
    assert [] == other.asked


def test_a_silent_judge_is_no_comparison():
    """Fewer than half of the answers say nothing about drift, and stop the run for themselves."""
    silent = Silent()
    with pytest.raises(JudgeError, match=r"must answer half of its canary; got 0 of 4 \(timed out\)"):
        require_unchanged(CANARY, silent, **LIMITS)


class Silent:
    """A judge that never answers in time."""

    digest, gives = "j", "logprobs"

    async def ask(self, requests):
        """Return failures."""
        return [Answer(None, "timed out")] * len(requests)


def test_a_score_turns_when_it_moves():
    """A score has no options: it has turned when it moved by a tenth."""
    canary = Canary("j", (OptionRequest(system="", question="0", options=()),), ((0.5,),))
    assert [1.0, 0.0] == [measure_drift(canary, judge((value,))).flips for value in (0.7, 0.55)]


def test_the_canary_is_the_same_in_any_order_and_survives_its_file():
    """It is spread over the answered questions by content; failures are not in it."""
    answers = {request: Answer((-1.0, -float(i))) for i, request in enumerate(REQUESTS)}
    failed = OptionRequest(system="", question="x", options=("no", "yes"))
    answers[failed] = Answer(None, "empty")
    chosen = choose_canary("j", answers, 2)
    assert chosen == choose_canary("j", dict(reversed(answers.items())), 2)
    assert 2 == len(chosen.requests)
    assert failed not in choose_canary("j", answers, 9).requests
    assert chosen == Canary.from_json(chosen.to_json())


@pytest.mark.parametrize("broken", [{}, {"judge_digest": "j", "requests": [{}], "values": []}])
def test_a_broken_file_is_refused(broken):
    """A canary of another form is an error that says what to do."""
    with pytest.raises(CalibrationError, match="must hold requests and values"):
        Canary.from_json(broken)


def test_no_canary_is_no_drift():
    """With no questions there is nothing to compare."""
    assert not math.isnan(measure_drift(Canary("j", (), ()), judge()).change)
