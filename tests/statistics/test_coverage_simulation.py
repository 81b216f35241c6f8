"""Coverage bands, monitor and drift alarm by simulation: how often they err, and how soon they see."""

import math

import numpy as np
import pytest
from scipy.special import betaincinv

from rangeline.conformal.calibration_band import coverage_band
from rangeline.conformal.coverage import clustered_band
from rangeline.conformal.drift import start_drift, update_drift
from rangeline.conformal.intervals import CalibrationSet
from rangeline.conformal.monitor import start_monitor, update, verdict

PROMPTS, GROUP, ALPHA, DELTA = 16, 8, 0.1, 0.05


def hits(random, rate, agreement, prompts=PROMPTS, group=GROUP):
    """Draw [prompts, group] hits of one rate, any two rows of a prompt correlated by `agreement`."""
    own, shared = random.random((prompts, group)) < rate, random.random((prompts, 1)) < rate
    return np.where(random.random((prompts, group)) < agreement**0.5, shared, own).astype(float)


def row_band(value_N, confidence):
    """Compute the textbook binomial band, which takes rows for independent."""
    num, good, tail = len(value_N), value_N.sum(), (1 - confidence) / 2
    low = betaincinv(good, num - good + 1, tail) if good else 0.0
    return low, betaincinv(good + 1, num - good, 1 - tail) if good < num else 1.0


def band_errors(agreement, *, draws, confidence=0.95, prompts=48):
    """Count how often each band misses a true coverage of .9."""
    random, ids = np.random.default_rng(5), [f"q{i // GROUP}" for i in range(prompts * GROUP)]
    rows = ours = 0
    for _ in range(draws):
        value = hits(random, 0.9, agreement, prompts).reshape(-1)
        low, high = row_band(value, confidence)
        rows += not low <= 0.9 <= high
        low, high = clustered_band(value, ids, confidence=confidence, num_resamples=500)
        ours += not low <= 0.9 <= high
    return rows / draws, ours / draws


def within(share, promised, draws):
    """Tell whether a share of errors is at most the promised one plus three standard errors."""
    return share <= promised + 3 * math.sqrt(promised * (1 - promised) / draws)


@pytest.mark.parametrize("agreement", [0.3, 0.6, 0.9])
def test_row_band_fails_where_the_clustered_band_holds(agreement):
    """Under agreement within prompts the binomial band of rows errs three times as often as it says; ours does not."""
    rows, ours = band_errors(agreement, draws=200)
    assert rows > 0.15
    assert within(ours, 0.05, 200)


@pytest.mark.slow
@pytest.mark.parametrize("agreement", [0.0, 0.3, 0.6, 0.9])
@pytest.mark.parametrize("prompts", [16, 48, 128])
def test_clustered_band_holds_in_2000_draws(agreement, prompts):
    """The clustered band errs at most as often as it says, for few and for many prompts."""
    rows, ours = band_errors(agreement, draws=2000, prompts=prompts)
    assert within(ours, 0.05, 2000)
    assert agreement == 0 or rows > 0.12


def alarms(rate, *, runs, iterations, agreement=0.6, each_prompt=False, after=0, seed=3):
    """Run monitors at a miss rate, the promised one up to iteration `after`; return each alarm's iteration or 0."""
    random, found = np.random.default_rng(seed), []
    for _ in range(runs):
        state, at = start_monitor(alpha=ALPHA, delta=DELTA), 0
        for t in range(1, iterations + 1):
            missed = hits(random, rate if t > after else ALPHA, agreement).mean(axis=1)
            for look in missed[:, None] if each_prompt else [missed]:
                state = update(state, look)
            if state.under_at is not None or state.over_at is not None:
                at = t
                break
        found.append(at)
    return np.array(found)


@pytest.mark.parametrize("agreement", [0.0, 0.9])
def test_monitor_looked_at_every_iteration_seldom_errs(agreement):
    """At exactly the promised rate, 400 runs of 60 iterations x 16 prompts alarm in at most delta + 3 errors."""
    assert within((alarms(ALPHA, runs=400, iterations=60, agreement=agreement) > 0).mean(), DELTA, 400)


@pytest.mark.slow
@pytest.mark.parametrize("agreement", [0.0, 0.3, 0.6, 0.9])
def test_monitor_looked_at_every_prompt_seldom_errs(agreement):
    """Looking after every single prompt costs nothing of the promise."""
    found = alarms(ALPHA, runs=400, iterations=60, agreement=agreement, each_prompt=True)
    assert within((found > 0).mean(), DELTA, 400)


def test_monitor_looked_at_every_prompt_seldom_errs_quickly():
    """The same in few runs."""
    assert within((alarms(ALPHA, runs=20, iterations=60, each_prompt=True) > 0).mean(), DELTA, 20)


@pytest.mark.parametrize(("agreement", "median", "most"), [(0.3, 5, 20), (0.9, 10, 40)])
def test_monitor_sees_a_true_coverage_of_80(agreement, median, most):
    """At miss rate .2 for .1, every run alarms: half of them within 5 (10) iterations of 16 prompts."""
    found = alarms(0.2, runs=100, iterations=most, agreement=agreement)
    assert (found > 0).all()
    assert np.median(found) <= median


def test_monitor_sees_a_late_break():
    """After 40 good iterations, a miss rate of .2 is found within 30 more in nearly all runs, half within 10."""
    found = alarms(0.2, runs=60, iterations=70, agreement=0.3, after=40)
    late = found[(found > 40) | (found == 0)] - 40
    assert (late > 0).mean() >= 0.95
    assert np.median(late) <= 10


def test_running_interval_holds_the_rate_at_every_look():
    """The interval misses the true rate at any of 30 looks in at most delta + 3 errors of 100 runs."""
    random, errors = np.random.default_rng(8), 0
    for _ in range(100):
        state, inside = start_monitor(alpha=ALPHA, delta=DELTA), True
        for _ in range(30):
            state = update(state, hits(random, 0.15, 0.6).mean(axis=1))
            result = verdict(state)
            inside &= result.lower <= 0.15 <= result.upper
        errors += not inside
    assert within(errors / 100, DELTA, 100)


def test_coverage_of_a_calibration_set_follows_its_beta_law():
    """Of 2,000 calibration sets of 50 uniform scores, 90 % have a coverage inside the 90 % band."""
    random = np.random.default_rng(2)
    coverage = np.sort(random.random((2000, 50)), axis=1)[:, 45]  # rank 46 of 50; coverage of a uniform is its value
    low, high = coverage_band(50, 0.1, confidence=0.9)
    assert 0.9 == pytest.approx(((coverage >= low) & (coverage <= high)).mean(), abs=3 * math.sqrt(0.09 / 2000))


SCORE_Z = np.linspace(0.1, 0.9, 8)
TRUE_Z = SCORE_Z + np.array([0.08, -0.08] * 4)
"""The scorer is wrong by state, in turns: without weights, a shift of states alone would look like drift."""


def drift_alarm(seed, scope, *, num_calibration, iterations=20, drift_from=None):
    """Return the iteration of the drift alarm or 0; states shift steadily, truths from a given iteration on."""
    random, even = np.random.default_rng(seed), np.full(8, 1 / 8)

    def draw(num, share_Z, true_Z):
        state = random.choice(8, num, p=share_Z)
        truth = (random.random(num) < true_Z[state]).astype(float)
        return state[:, None], truth

    levels, truth = draw(num_calibration, even, TRUE_Z)
    built = CalibrationSet.build(
        [f"c{i}" for i in range(num_calibration)],
        levels,
        score_C=SCORE_Z[levels[:, 0]],
        scale_C=np.ones(num_calibration),
        truth_C=truth,
    )
    state = start_drift(built, delta=DELTA, seed=seed, scope=scope)
    for t in range(1, iterations + 1):
        share = np.exp(np.linspace(-1, 1, 8) * 2 * t / iterations)
        share /= share.sum()
        moved = drift_from is not None and t >= drift_from
        levels, truth = draw(PROMPTS, share, np.clip(TRUE_Z - 0.4, 0, 1) if moved else TRUE_Z)
        log_ratio_Z = np.log(share / even)
        state = update_drift(
            state,
            [f"{t}/{i}" for i in range(PROMPTS)],
            iteration=t,
            levels_NK=levels,
            nonconformity_N=np.abs(SCORE_Z[levels[:, 0]] - truth),
            log_ratio=(lambda z, log_Z=log_ratio_Z: log_Z[np.asarray(z)[:, 0]]) if scope == "pooled" else None,
        )
        if state.alarm:
            return t
    return 0


@pytest.mark.parametrize("scope", ["state", "pooled"])
def test_shift_of_states_alone_is_no_drift(scope):
    """States shift by a factor of 50 with right weights: the alarm errs in at most delta + 3 errors of 60 runs."""
    found = np.array([drift_alarm(seed, scope, num_calibration=128) for seed in range(60)])
    assert within((found > 0).mean(), DELTA, 60)


@pytest.mark.slow
@pytest.mark.parametrize("num_calibration", [32, 128, 512])
@pytest.mark.parametrize("scope", ["state", "pooled"])
def test_shift_of_states_alone_is_no_drift_in_400_runs(scope, num_calibration):
    """The same at other calibration sizes, in more runs."""
    found = np.array([drift_alarm(seed, scope, num_calibration=num_calibration) for seed in range(400)])
    assert within((found > 0).mean(), DELTA, 400)


@pytest.mark.parametrize(("scope", "least"), [("state", 0.8), ("pooled", 0.9)])
def test_drift_of_the_truth_given_the_state_is_seen(scope, least):
    """Truths rarer by .4 in every state from iteration 5 on, under the same shift, are found after they moved."""
    found = np.array([drift_alarm(seed, scope, num_calibration=512, drift_from=5) for seed in range(20)])
    assert (found >= 5).mean() >= least
