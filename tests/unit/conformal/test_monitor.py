"""Unit tests of the coverage monitor, its bets and the miss rates that it is fed."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from rangeline.conformal.betting import NUM_BETS, log_bets_on_p_value, log_gain, lower_limit, share_wealth
from rangeline.conformal.misses import missed_by_prompt
from rangeline.conformal.monitor import MonitorState, start_monitor, update, verdict
from rangeline.errors import CalibrationError


def test_gain_is_the_log_of_the_wealth():
    """The bet of 1/2 against a mean of .1 gains 1 + (x / .1 - 1) / 2 on each observation."""
    gain_K = log_gain([0.0, 0.5], 0.1)
    assert math.log(0.5) + math.log(3.0) == pytest.approx(gain_K[6])
    assert 0.0 == gain_K[0]


@pytest.mark.parametrize("mean", [0.1, 0.25, 0.9])
def test_no_bet_gains_on_average_at_the_promised_mean(mean):
    """At miss rates of 0 or 1 with exactly the promised mean, each bet's expected gain is 1."""
    expected_K = (1 - mean) * np.exp(log_gain([0.0], mean)) + mean * np.exp(log_gain([1.0], mean))
    assert np.ones(NUM_BETS) == pytest.approx(expected_K)


def test_bets_on_p_values_have_mean_one():
    """Over uniform p-values each bet's expected gain is 1."""
    v = (np.arange(2000) + 0.5) / 2000
    gains = np.mean([np.exp(log_bets_on_p_value(float(x**4))) * 4 * x**3 for x in v], axis=0)  # p = v^4
    assert np.ones(len(gains)) == pytest.approx(gains, abs=1e-3)


def test_sharing_keeps_the_total():
    """Moving wealth between bets neither makes nor loses any."""
    shared = share_wealth(np.log([0.7, 0.2, 0.1]), 3)
    assert 1.0 == pytest.approx(np.exp(shared).sum())
    assert [1 / 13 / 3 + 12 / 13 * 0.7] == pytest.approx([np.exp(shared)[0]])


def test_lower_limit_lies_below_the_mean_and_rises_with_evidence():
    """More of the same observations refute more candidate means, never the observed one."""
    few, many = (lower_limit([0.0, 0.5], [n, n], log_threshold=math.log(40)) for n in (10, 200))
    assert 0 <= few < many < 0.25


def test_order_of_prompts_changes_no_bit():
    """Permuted miss rates of an iteration give the same state."""
    rates = [0.125, 0.0, 0.5, 0.875, 1 / 3, 0.0]
    start = start_monitor(alpha=0.1)
    assert update(start, rates).to_json() == update(start, rates[::-1]).to_json()


def test_resumed_monitor_equals_the_uninterrupted():
    """A state through JSON text after every iteration ends in the same bits."""
    random = np.random.default_rng(0)
    straight = resumed = start_monitor(alpha=0.1)
    for _ in range(12):
        rates = random.integers(0, 9, 16) / 8
        straight = update(straight, rates)
        resumed = MonitorState.from_json(json.loads(json.dumps(update(resumed, rates).to_json())))
    assert straight == resumed
    assert verdict(straight) == verdict(resumed)


def test_nothing_seen_is_too_little_evidence():
    """Before the first prompt the interval is [0, 1] and nothing is averaged."""
    result = verdict(start_monitor(alpha=0.1))
    assert ("too_little_evidence", 0.0, 1.0, None, 0) == (
        result.status,
        result.lower,
        result.upper,
        result.mean_miss,
        result.num_prompts,
    )


def test_an_iteration_without_a_prompt_changes_nothing():
    """No valid prompt is no observation."""
    state = update(start_monitor(alpha=0.1), [0.25])
    assert state is update(state, [])


@pytest.mark.parametrize(
    ("rates", "status"),
    [
        ([0.5] * 16, "under_coverage"),
        ([0.0] * 128, "over_coverage"),
        ([0.125, 0.125, 0.0, 0.125] * 32, "covered"),
        ([0.125, 0.0] * 4, "too_little_evidence"),
    ],
)
def test_verdicts(rates, status):
    """Many misses alarm, no miss for long is vacuous, the promised rate is covered, and little is said of little."""
    result = verdict(update(start_monitor(alpha=0.1), rates))
    assert status == result.status
    assert result.lower < result.mean_miss < result.upper or result.mean_miss in (result.lower, result.upper)


def test_alarms_stay_and_under_coverage_comes_first():
    """Later perfect coverage does not take the alarm back; both alarms are reported as under-coverage."""
    state = update(start_monitor(alpha=0.1), [0.6] * 16)
    assert 16 == state.under_at
    for _ in range(40):
        state = update(state, [0.0] * 16)
    assert (16, True, "under_coverage") == (state.under_at, state.over_at is not None, verdict(state).status)


@pytest.mark.parametrize(
    ("rates", "ids", "message"),
    [
        ([0.1, math.nan], ["a", "b"], r"'missed_P' must lie in \[0, 1\]; got nan \(prompt 'b'\)"),
        ([0.1, math.nan], None, r"got nan \(prompt number 1\)"),
        ([1.5], ["a"], r"got 1.5 \(prompt 'a'\)"),
        ([-math.inf], ["a"], r"got -inf \(prompt 'a'\)"),
        ([0.1, 0.2], ["a", "a"], r"'prompt_id_P' must be distinct; got 2 times prompt 'a'"),
        ([0.1, 0.2], ["a"], r"got shape \(2,\) for 1 ids"),
        ([[0.1]], None, r"got shape \(1, 1\) for no ids"),
    ],
)
def test_update_names_the_prompt_that_it_refuses(rates, ids, message):
    """NaN, values that are no rates and prompts that come twice are refused by name."""
    with pytest.raises(CalibrationError, match=message):
        update(start_monitor(alpha=0.1), rates, prompt_id_P=ids)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"alpha": 0.0}, r"'alpha' must lie in \(0, 1\); got 0.0"),
        ({"delta": math.nan}, r"'delta' must lie in \(0, 1\); got nan"),
        ({"tolerance": 0.95}, r"'tolerance' must lie in"),
        ({"log_wealth_under_K": (math.nan,) * NUM_BETS}, "'log_wealth_under_K' must hold 8 finite numbers"),
        ({"log_wealth_over_K": (0.0,)}, "'log_wealth_over_K' must hold 8 finite numbers"),
        ({"miss_counts_D2": ((2.0, 1),)}, "'miss_counts_D2' must hold rates"),
        ({"miss_counts_D2": ((0.5, 0),)}, "'miss_counts_D2' must hold rates"),
    ],
)
def test_damaged_state_is_refused(change, message):
    """A state that no run can have is not continued."""
    with pytest.raises(CalibrationError, match=message):
        replace(start_monitor(alpha=0.1), **change)


def test_misses_are_averaged_over_valid_rollouts():
    """A prompt's miss rate leaves invalid rollouts out; a prompt without a valid one is no observation."""
    rates, ids = missed_by_prompt([1, 0, 0, 0, 1], [1, 1, 0, 0, 1], ["b", "b", "b", "c", "a"])
    assert ([0.0, 0.5], ("a", "b")) == (rates.tolist(), ids)
    assert ([], ()) == (missed_by_prompt([1], [0], ["a"])[0].tolist(), missed_by_prompt([1], [0], ["a"])[1])


def test_misses_refuse_wrong_lengths():
    """One value a rollout."""
    with pytest.raises(CalibrationError, match=r"must have shape \(2,\); got \(1,\), \(2,\)"):
        missed_by_prompt([1], [1, 1], ["a", "b"])
