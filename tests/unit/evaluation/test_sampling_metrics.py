import math

import numpy as np
import pytest

from rangeline.errors import BadInputError
from rangeline.evaluation.sampling_metrics import clustered_interval, evaluate_samples, pass_at_k, prompt_means

NAN = math.nan


@pytest.mark.parametrize(
    ("n", "c", "k", "expected"),
    [(4, 1, 1, 0.25), (4, 1, 2, 0.5), (4, 2, 2, 5 / 6), (5, 0, 5, 0.0), (5, 1, 5, 1.0), (3, 3, 2, 1.0)],
)
def test_pass_at_k_equals_hand_worked_values(n, c, k, expected):
    """pass@k is one minus the share of k-subsets that are all wrong."""
    assert pytest.approx(expected, rel=1e-15) == pass_at_k(n, c, k)


def test_pass_at_k_stays_exact_for_large_counts():
    """Binomials far beyond the float range still give a probability."""
    assert pytest.approx(1 - (1 - 1 / 5000) ** 1, rel=1e-12) == pass_at_k(5000, 1, 1)
    assert 0 < pass_at_k(5000, 1, 2500) < 1


def test_pass_at_k_refuses_fewer_samples_than_k():
    """Fewer completions than k say nothing on pass@k."""
    with pytest.raises(BadInputError, match=r"'num_samples' must lie in \[4, inf\) for pass@4; got 3"):
        pass_at_k(3, 3, 4)


def test_pass_at_k_refuses_k_below_one():
    """K counts completions, so it starts at 1."""
    with pytest.raises(BadInputError, match=r"'k' must lie in \[1, inf\); got 0"):
        pass_at_k(3, 1, 0)


@pytest.mark.parametrize("num_right", [-1, 4])
def test_pass_at_k_refuses_impossible_counts(num_right):
    """Right completions are a part of the valid ones."""
    with pytest.raises(BadInputError, match=rf"'num_right' must lie in \[0, 3\]; got {num_right}"):
        pass_at_k(3, num_right, 1)


def test_average_weighs_prompts_and_not_rows():
    """A prompt with many rollouts counts as much as a prompt with one."""
    metrics = evaluate_samples(np.array([1.0, 0.0, 0.0, 0.0, 0.0]), ["p", "q", "q", "q", "q"], ks=(1,), seed=0)
    assert metrics.average.value == 0.5
    assert metrics.pass_at_k[1].value == 0.5


def test_missing_is_neither_right_nor_wrong():
    """Dropping missing rows by hand gives the same estimates as marking them."""
    marked = evaluate_samples(np.array([1.0, NAN, 0.0, 1.0, NAN]), ["p", "p", "p", "q", "q"], ks=(1,), seed=3)
    dropped = evaluate_samples(np.array([1.0, 0.0, 1.0]), ["p", "p", "q"], ks=(1,), seed=3)
    assert dropped.average == marked.average
    assert dropped.pass_at_k == marked.pass_at_k
    assert pytest.approx(0.4) == marked.missing_share
    assert (marked.num_rows, marked.num_valid_rows) == (5, 3)


def test_pass_at_k_leaves_out_prompts_with_fewer_than_k_valid_rows():
    """A prompt whose missing rows leave fewer than k is left out, and the count says so."""
    reward_N, prompts = np.array([0.0, 1.0, 1.0, NAN]), ["p", "p", "q", "q"]
    metrics = evaluate_samples(reward_N, prompts, ks=(1, 2, 3), seed=0)
    assert [metrics.pass_at_k[k].num_prompts for k in (1, 2, 3)] == [2, 1, 0]
    assert [metrics.pass_at_k[k].value for k in (1, 2, 3)] == [0.75, 1.0, None]
    assert None is metrics.pass_at_k[3].lower


def test_all_missing_gives_no_value():
    """Without a single verdict accuracy is unknown, not 0."""
    metrics = evaluate_samples(np.array([NAN, NAN]), ["p", "q"], ks=(1,), seed=0)
    assert (
        metrics.average.value,
        metrics.average.lower,
        metrics.average.upper,
        metrics.average.num_prompts,
    ) == (None, None, None, 0)
    assert None is metrics.pass_at_k[1].value
    assert (metrics.missing_share, metrics.num_prompts, metrics.num_valid_rows) == (1.0, 2, 0)


def test_order_of_rows_changes_nothing():
    """Rows are grouped by prompt id, so that their order carries no meaning."""
    reward_N = np.array([1.0, 0.0, NAN, 1.0, 0.0, 1.0])
    prompts = np.array(["p", "p", "q", "q", "r", "r"])
    order = np.array([5, 2, 0, 4, 3, 1])
    straight = evaluate_samples(reward_N, prompts.tolist(), ks=(1, 2), seed=1)
    assert straight == evaluate_samples(reward_N[order], prompts[order].tolist(), ks=(1, 2), seed=1)


def test_same_seed_gives_the_same_interval_and_another_seed_another():
    """The bootstrap depends on its seed alone."""
    value_P = np.array([0.1, 0.9, 0.4, 0.7, 0.2])

    def interval(seed):
        return clustered_interval(value_P, confidence=0.9, seed=seed, support=None)

    assert interval(1) == interval(1)
    assert interval(1) != interval(2)


def test_repeating_rollouts_of_a_prompt_does_not_narrow_the_interval():
    """Copies of rows inside their prompts add no evidence."""
    reward_N, prompts = np.array([1.0, 0.0, 1.0, 0.0]), ["p", "q", "r", "s"]
    once = evaluate_samples(reward_N, prompts, ks=(), seed=0)
    assert once.average == evaluate_samples(np.tile(reward_N, 8), prompts * 8, ks=(), seed=0).average


def test_interval_holds_its_mean_and_widens_with_confidence():
    """A higher confidence gives an interval around the narrower one."""
    value_P = np.array([0.0, 0.25, 0.5, 0.75, 1.0, 0.5])
    narrow = clustered_interval(value_P, confidence=0.5, seed=0, support=(0, 1))
    wide = clustered_interval(value_P, confidence=0.95, seed=0, support=(0, 1))
    assert wide[0] < narrow[0] < 0.5 < narrow[1] < wide[1]


@pytest.mark.parametrize(("value", "lower", "upper"), [(1.0, 0.025 ** (1 / 3), 1.0), (0.0, 0.0, 1 - 0.025 ** (1 / 3))])
def test_equal_prompts_do_not_claim_certainty(value, lower, upper):
    """Three prompts that are all right give the Clopper-Pearson bound, not a width of 0."""
    interval = clustered_interval(np.full(3, value), confidence=0.95, seed=0, support=(0, 1))
    assert pytest.approx((lower, upper)) == interval


def test_one_unbounded_prompt_has_no_interval():
    """One prompt of an unbounded reward says nothing on its spread."""
    metrics = evaluate_samples(np.array([3.0, 5.0]), ["p", "p"], ks=(), seed=0)
    assert (metrics.average.value, metrics.average.lower, metrics.average.upper) == (4.0, None, None)


@pytest.mark.parametrize("confidence", [0.0, 1.0, 95.0, NAN])
def test_confidence_outside_its_range_is_refused(confidence):
    """A confidence in percent is a mistake worth naming."""
    with pytest.raises(BadInputError, match=r"'confidence' must lie in \(0, 1\); got"):
        evaluate_samples(np.array([1.0, 0.0]), ["p", "q"], ks=(), confidence=confidence, seed=0)


def test_no_rows_are_refused():
    """An evaluation of nothing is a mistake."""
    with pytest.raises(BadInputError, match=r"'reward_N' must hold at least one row; got 0"):
        evaluate_samples(np.array([]), [], ks=(1,), seed=0)


def test_graded_rewards_have_no_pass_at_k():
    """pass@k needs right or wrong, and a graded reward is neither."""
    with pytest.raises(BadInputError, match=r"'reward_N' must be 0 or 1 for pass@k; got 0.5"):
        evaluate_samples(np.array([1.0, 0.5]), ["p", "p"], ks=(1,), seed=0)


def test_infinite_rewards_are_refused_with_their_place():
    """An infinite reward would swallow every mean, so that its row is named."""
    with pytest.raises(BadInputError, match=r"must be finite, or NaN where missing; got inf \(row 1, prompt 'q'\)"):
        prompt_means(np.array([1.0, np.inf]), ["p", "q"])


def test_lengths_must_agree():
    """A reward without a prompt id cannot be grouped."""
    with pytest.raises(BadInputError, match=r"one value a prompt id; got shape \(2,\) for 1 ids"):
        prompt_means(np.array([1.0, 0.0]), ["p"])
