"""False alarms and delays of the sequential coverage monitor, on prompts with a known miss rate.

Computes the share of runs in which under-coverage was alarmed, by prompts seen, for each true miss rate.
A run is 60 iterations of 32 prompts; the rollouts of a prompt miss alike (beta-binomial, correlation rho).
The comparison looks after every iteration at a fixed-sample 95 % test on rows, as if each look were the only one.
Left out: estimated cutoffs; the miss rate is given, since what is judged here is the alarm.

Shapes: R runs, I iterations, P prompts of one iteration.
"""

from dataclasses import dataclass

import numpy as np

from benchmarks.coverage.world import ROLLOUTS, Array
from rangeline.conformal.monitor import start_monitor, update
from rangeline.seeds import stream

ALPHA = 0.1
DELTA = 0.05
PROMPTS = 32
ITERATIONS = 60
_NORMAL_95 = 1.6449


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarms:
    """How often, and when, the monitor and the repeated row-level test spoke."""

    miss_rate: float
    correlation: float
    change_at: int
    """Iteration from which the miss rate holds; before it is alpha."""
    num_runs: int
    monitor_I: tuple[float, ...]
    """Share of runs alarmed by the end of each iteration."""
    repeated_test_I: tuple[float, ...]
    median_delay: float | None
    """Prompts from the change to the monitor's alarm; None where fewer than half of the runs alarm."""
    over_share: float
    """Share of runs in which over-coverage was alarmed."""


def _miss_rates(rng: np.random.Generator, rate_I: Array, correlation: float) -> Array:
    shape = (len(rate_I), PROMPTS)
    own_IP = np.broadcast_to(rate_I[:, None], shape)
    if correlation > 0:
        strength = (1 - correlation) / correlation
        own_IP = rng.beta(own_IP * strength, (1 - own_IP) * strength)
    return np.asarray(rng.binomial(ROLLOUTS, own_IP) / ROLLOUTS)


def _repeated_test(miss_IP: Array) -> int | None:
    rows_I = PROMPTS * ROLLOUTS * np.arange(1, len(miss_IP) + 1)
    excess_I = np.cumsum(miss_IP.mean(axis=1)) / np.arange(1, len(miss_IP) + 1) - ALPHA
    alarmed = np.flatnonzero(excess_I > _NORMAL_95 * np.sqrt(ALPHA * (1 - ALPHA) / rows_I))
    return int(alarmed[0]) if alarmed.size else None


def _share_by(at_R: list[int | None], num: int) -> tuple[float, ...]:
    return tuple(float(np.mean([at is not None and at <= i for at in at_R])) for i in range(num))


def simulate(miss_rate: float, correlation: float, *, change_at: int, num_runs: int, seed: int) -> Alarms:
    """Run the monitor many times on one true miss rate."""
    rate_I = np.where(np.arange(ITERATIONS) < change_at, ALPHA, miss_rate)
    monitor_R: list[int | None] = []
    test_R: list[int | None] = []
    num_over = 0
    for number in range(num_runs):
        rng = stream(seed, "benchmark/monitor", str(miss_rate), str(correlation), change_at, number)
        miss_IP = _miss_rates(rng, rate_I, correlation)
        state = start_monitor(alpha=ALPHA, delta=DELTA)
        for miss_P in miss_IP:
            state = update(state, miss_P)
        monitor_R.append(None if state.under_at is None else state.under_at // PROMPTS - 1)
        num_over += state.over_at is not None
        test_R.append(_repeated_test(miss_IP))
    delays = [at - change_at + 1 for at in monitor_R if at is not None and at >= change_at]
    return Alarms(
        miss_rate=miss_rate,
        correlation=correlation,
        change_at=change_at,
        num_runs=num_runs,
        monitor_I=_share_by(monitor_R, ITERATIONS),
        repeated_test_I=_share_by(test_R, ITERATIONS),
        median_delay=_median_delay(delays, num_runs),
        over_share=num_over / num_runs,
    )


def _median_delay(delays: list[int], num_runs: int) -> float | None:
    padded = sorted([*map(float, delays), *[np.inf] * (num_runs - len(delays))])
    middle = padded[len(padded) // 2] if padded else np.inf
    return None if np.isinf(middle) else middle * PROMPTS


def settings(*, quick: bool) -> tuple[tuple[float, float, int], ...]:
    """Return (miss rate, correlation, iteration of the change)."""
    rates, correlations = ((0.1, 0.2), (0.0, 0.6)) if quick else ((0.05, 0.1, 0.13, 0.15, 0.2, 0.3), (0.0, 0.3, 0.6))
    at_once = [(rate, rho, 0) for rate in rates for rho in correlations]
    return (*at_once, *[(rate, rho, 20) for rate in rates if rate > ALPHA for rho in correlations[:1]])
