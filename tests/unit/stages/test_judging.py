"""What a rollout says: one writing for equal answers, and missing where nobody could give a reward."""

import numpy as np
import pytest

from rangeline.errors import CalibrationError
from rangeline.judge.client import ScriptedJudge
from rangeline.judge.judgment import Limits
from rangeline.judge.rubric import parse_rubric
from rangeline.records import PromptRow, RolloutSet
from rangeline.stages.judging import FrozenJudge, judge_all, verify_rollouts
from rangeline.stages.progress import silent
from rangeline.stages.session import TrainingSession

RUBRIC = """
name: r
coordinates:
  - {name: agreement, kind: agreement, cuts: [0.5, 0.9]}
  - {name: well_formed, kind: well_formed}
"""


def rollouts_of(*completions, finish=None):
    """Make the rollouts of one prompt."""
    num = len(completions)
    return RolloutSet(
        prompt_id_N=("p",) * num,
        sample_N=tuple(range(num)),
        completion_N=completions,
        prompt_token_ids_N=((1,),) * num,
        token_ids_N=((2,),) * num,
        sampled_logprobs_N=((-1.0,),) * num,
        finish_reason_N=finish or ("stop",) * num,
        policy_version=0,
    )


def rows(reference=None):
    """Make the prompt of the rollouts."""
    return {"p": PromptRow(prompt_id="p", prompt="500 + 500?", suite="reasoning_gym", reference=reference)}


def judged(rollouts, reference=None):
    """Judge the rollouts by a rubric that asks no model."""
    judge = FrozenJudge(
        parse_rubric(RUBRIC, source="r"), ScriptedJudge(lambda request: (0.0,)), None, Limits(missing_share=0.5)
    )
    verdicts = verify_rollouts(rollouts, rows(reference))
    return judge_all(judge, rollouts, rows(reference), verdicts, silent, "judge")


def test_equal_answers_agree_however_they_are_written():
    """Agreement counts answers, not writings of them."""
    table = judged(rollouts_of("1000", "1,000", "1000.0", "+1000"))
    assert [2, 2, 2, 2] == table.levels_NK[:, 0].tolist()


@pytest.mark.parametrize("reference", [None, "1000"])
def test_cut_off_before_an_answer_is_missing_and_never_zero(reference):
    """A rollout that ended at the token limit without an answer has no state and no truth, labelled or not."""
    rollouts = rollouts_of("1000", "Let me think", finish=("stop", "length"))
    verdicts = verify_rollouts(rollouts, rows(reference))
    assert [False, True] == judged(rollouts, reference).missing_N.tolist()
    assert np.isnan(verdicts.truth_N[1])


def test_complete_reply_without_an_answer_is_judged():
    """A reply that ended by itself without an answer is wrong, not missing."""
    rollouts = rollouts_of("1000", "I do not know.")
    assert not judged(rollouts, "1000").missing_N.any()
    assert [1.0, 0.0] == verify_rollouts(rollouts, rows("1000")).truth_N.tolist()


def test_states_of_another_judge_are_refused(copy):
    """A rubric that changed after calibration stops the run before its states are mixed with the old ones."""
    path = copy.workspace.root / copy.config.judge.rubric
    path.write_text(path.read_text().replace("name: arithmetic", "name: another"))
    config = copy.config.model_copy(update={"train": copy.config.train.model_copy(update={"iterations": 3})})
    with TrainingSession(copy.workspace, config, run="r") as session:
        session.sample(3)
        with pytest.raises(CalibrationError, match="The judge must be the one of the calibration set"):
            session.judge_states(3)
