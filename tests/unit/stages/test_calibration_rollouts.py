"""Calibration rollouts: what could never calibrate is refused before a judge is asked, with the reason."""

import numpy as np
import pytest

from rangeline.config import PipelineConfig
from rangeline.errors import CalibrationError
from rangeline.records import PromptRow
from rangeline.stages.calibration_rollouts import SampledPool, missing_note, require_checkable
from rangeline.stages.judging import Verdicts


class Owners:
    """The only thing that is read of rollouts: whose they are."""

    def __init__(self, names):
        self.prompt_id_N = tuple(names)


def pool(truths, reason="cut off", *, unscorable=False):
    """Return a pool of two rollouts a prompt, from the truth of each."""
    names = [f"p{i // 2}" for i in range(len(truths))]
    truth = np.array(truths, dtype=float)
    verdicts = Verdicts(
        extracted_N=(None,) * len(truths),
        truth_N=truth,
        reason_N=tuple(reason if np.isnan(value) or unscorable else "right" for value in truth),
        unscorable_N=np.full(len(truths), unscorable),
    )
    rows = {name: PromptRow(prompt_id=name, prompt="?", suite="grade_school_math") for name in dict.fromkeys(names)}
    return SampledPool(rows, Owners(names), verdicts)


CONFIG = PipelineConfig.model_validate({"intervals": {"alpha": 0.2}, "sampling": {"max_tokens": 24}})
NAN = float("nan")


def test_a_prompt_counts_once_it_has_one_checked_answer():
    """Four prompts serve alpha 0.2, though half of their rollouts were cut off."""
    require_checkable(pool([1.0, NAN, 0.0, NAN, 0.0, NAN, 1.0, NAN]), CONFIG)


def test_cut_off_rollouts_name_the_setting_to_raise():
    """The count of prompts, why answers could not be checked, and the limit to raise."""
    words = r"must have 4 prompts .* got 3 of 4 \(5 cut off, of 8 rollouts\)\. Raise sampling.max_tokens, now 24"
    with pytest.raises(CalibrationError, match=words):
        require_checkable(pool([1.0, NAN, 0.0, NAN, 0.0, NAN, NAN, NAN]), CONFIG)


def test_too_few_prompts_ask_for_labels():
    """Where nothing was cut off, the prompts themselves are too few."""
    with pytest.raises(CalibrationError, match=r"got 1 of 1 .* Add labelled prompts"):
        require_checkable(pool([1.0, 0.0]), CONFIG)


def test_what_nobody_can_score_calibrates_nothing():
    """A truth of a rollout with several answers is no checked answer."""
    with pytest.raises(CalibrationError, match=r"got 0 of 4 .*ambiguous"):
        require_checkable(pool([0.0] * 8, "ambiguous", unscorable=True), CONFIG)


def test_missing_rewards_are_told_before_the_judge_is_asked():
    """More than the gate lets pass, with how many were cut off; nothing is said of fewer."""
    cut = SampledPool({}, Owners(["a"] * 4), pool([NAN] * 4, unscorable=True).verdicts)
    fine = pool([1.0, 0.0, 1.0, 0.0])
    told = missing_note({"source": cut, "calibration": fine}, CONFIG)
    assert told.startswith("4 of 8 rollouts can have no reward, 4 of them cut off at sampling.max_tokens=24")
    assert missing_note({"calibration": fine}, CONFIG) is None
