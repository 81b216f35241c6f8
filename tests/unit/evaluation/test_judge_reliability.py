"""What a coordinate says about the truth, and whether that is more than chance."""

import numpy as np
import pytest

from rangeline.evaluation.judge_reliability import coordinate_information, mutual_information

PROMPTS = [f"p{i // 4}" for i in range(48)]
TRUTH = np.array([0.0, 1.0, 1.0, 0.0] * 12)


def information(level, truth=TRUTH, *, missing=None, length=None, prompts=PROMPTS, **options):
    """Measure levels 0 and 1 on twelve prompts of four rollouts."""
    size = len(truth)
    return coordinate_information(
        np.array(level, dtype=np.int8),
        truth,
        num_levels=2,
        missing_N=np.zeros(size, dtype=bool) if missing is None else missing,
        prompt_id_N=prompts,
        length_N=np.ones(size) if length is None else length,
        **options,
    )


def test_a_judge_that_knows_is_informative():
    """The truth itself carries all of its own information, beyond chance."""
    found = information(TRUTH)
    assert ("informative", 1.0, 1.0, 1.0) == (found.recommendation, found.auc, found.kappa, found.information_bits)
    assert found.information_share > 0.9
    assert found.p_value == pytest.approx(1 / 401)


def test_a_judge_that_guesses_is_noise():
    """Levels drawn without looking carry no more than chance gives."""
    guesses = np.random.default_rng(3).integers(0, 2, 48)
    found = information(guesses)
    assert "noise" == found.recommendation
    assert found.p_value > 0.05


def test_a_constant_judge_is_noise():
    """One level for everything says nothing, and nothing is undefined by it but what compares."""
    found = information(np.zeros(48))
    assert ("noise", 0.0, 1.0, 0.5) == (found.recommendation, found.information_bits, found.p_value, found.auc)


def test_prompts_that_depend_are_not_evidence_many_times_over():
    """A level that is one a prompt is chance over prompts, however many rollouts each of them has."""
    truth = np.repeat([0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0], 20)
    prompts = [f"p{i // 20}" for i in range(160)]
    level = np.repeat([0, 1, 1, 1, 0, 1, 0, 0], 20)
    naive = mutual_information(level, truth)
    found = information(level, truth, prompts=prompts)
    assert naive == pytest.approx(found.information_bits)
    assert ("noise", True) == (found.recommendation, found.p_value > 0.05)


def test_few_rollouts_decide_nothing():
    """Perfect agreement on a handful of rollouts, or one truth for all, is no recommendation."""
    few = information(TRUTH[:12], TRUTH[:12], prompts=PROMPTS[:12])
    assert ("undecided", 12, 3) == (few.recommendation, few.num_rows, few.num_prompts)
    alone = information(TRUTH, np.ones(48))
    assert ("undecided", None, None) == (alone.recommendation, alone.information_bits, alone.auc)


def test_unknown_is_a_level_and_missing_is_none():
    """UNKNOWN that goes with wrong answers informs; a missing state leaves every number."""
    level = np.where(TRUTH > 0.5, 1, -1)
    found = information(level)
    assert ("informative", 0.5) == (found.recommendation, found.unknown_share)
    assert found.auc is None  # no level is left to compare with
    missing = np.zeros(48, dtype=bool)
    missing[:4] = True
    level = TRUTH.copy()
    level[:4] = -1
    assert (44, pytest.approx(4 / 48), 1.0) == (
        (found := information(level, missing=missing)).num_rows,
        found.missing_share,
        found.auc,
    )


def test_length_bias_is_measured_at_equal_truth():
    """A level that follows length is told from one that follows a truth that follows length."""
    length = TRUTH * 100 + np.arange(48)
    assert information(TRUTH, length=length).length_correlation is None
    longer = (np.arange(48) % 48 >= 24).astype(int)
    assert information(longer, length=np.arange(48.0)).length_correlation > 0.8


def test_shares_of_rewards_are_cut_into_classes():
    """A graded truth is cut at its quantiles; order inside a class means nothing."""
    truth = np.linspace(0, 1, 48)
    assert information((truth > 0.5).astype(int), truth).information_bits == pytest.approx(1.0)


def test_rows_may_come_in_any_order():
    """Groups go by prompt id, never by position."""
    order = np.random.default_rng(0).permutation(48)
    guesses = np.random.default_rng(3).integers(0, 2, 48)
    straight = information(guesses)
    shuffled = information(guesses[order], TRUTH[order], prompts=[PROMPTS[i] for i in order])
    assert straight.information_bits == pytest.approx(shuffled.information_bits)
    assert straight.kappa == pytest.approx(shuffled.kappa)


def test_information_is_symmetric_and_never_negative():
    """I(A; B) = I(B; A) >= 0."""
    rng = np.random.default_rng(1)
    a, b = rng.integers(0, 3, 50), rng.integers(0, 4, 50)
    assert mutual_information(a, b) == pytest.approx(mutual_information(b, a))
    assert mutual_information(a, b) >= 0
