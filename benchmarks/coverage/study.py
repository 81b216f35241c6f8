"""Coverage of each way of weighting, one design and one replicate at a time.

Computes, per calibration size and alpha, coverage, mean width, effective and unbounded share of every method.
A replicate draws one source pool (scorer and ratio are fitted on it), one ratio pool, and several calibration sets.
Means are over calibration sets within a replicate, then over replicates; the standard error is over replicates only.
Left out: the choice of settings; every method has the product's defaults.

Shapes: U states of the world, C calibration rows.
"""

from collections import defaultdict
from dataclasses import replace
from typing import get_args

import numpy as np

from benchmarks.coverage.world import (
    ROLLOUTS,
    Array,
    Design,
    World,
    draw_rewards,
    draw_states,
    exact_coverage,
    make_world,
)
from rangeline.conformal.density_ratio import Method, fit_density_ratio
from rangeline.conformal.intervals import weighted_cutoffs
from rangeline.conformal.overlap import effective_sample_size
from rangeline.conformal.scorer import ResidualScale, StateScorer
from rangeline.seeds import stream

ESTIMATED = tuple(get_args(Method))
"""Ways to estimate the ratio that the library has."""
METHODS = ("unweighted", "true ratio", *ESTIMATED, "constant test mass")
MEASURES = ("coverage", "width", "ess_share", "unbounded_share")
ALPHAS = (0.05, 0.1, 0.2)
SETS_OF_SIZE = {32: 32, 128: 16, 512: 8, 2048: 4}
"""Calibration sizes, and how many sets of each one replicate draws: small ones vary most."""
_CAP_QUANTILE = 0.95

Key = tuple[int, float, str]
Row = dict[str, float]


def _ratios(
    world: World, design: Design, source_N: np.ndarray, rng: np.random.Generator, seed: int
) -> dict[str, Array]:
    target_N = draw_states(rng, world.target_U, design.pool_rows, design.correlation)
    pools = world.levels_UK[source_N], world.levels_UK[target_N]
    prompts = [number // ROLLOUTS for number in range(design.pool_rows)]
    ids = ([f"source {number}" for number in prompts], [f"target {number}" for number in prompts])
    fitted = {m: fit_density_ratio(*pools, world.num_levels, method=m, seed=seed, prompt_ids=ids) for m in ESTIMATED}
    return {
        "unweighted": np.zeros(len(world.levels_UK)),
        "true ratio": world.log_ratio_U,
        **{m: ratio.log_ratio(world.levels_UK) for m, ratio in fitted.items()},
    }


def _log_weights(method: str, log_ratio_MU: dict[str, Array], state_C: np.ndarray) -> tuple[Array, Array]:
    """Return log weights of calibration rows and of all states as test points."""
    if method != "constant test mass":
        return log_ratio_MU[method][state_C], log_ratio_MU[method]
    # Forest weights capped at a quantile of the calibration rows' own, and mass 1 for any test point.
    log_U = log_ratio_MU["forest" if "forest" in log_ratio_MU else "logistic"]
    cap = float(np.quantile(log_U[state_C], _CAP_QUANTILE))
    return np.minimum(log_U[state_C], cap), np.zeros(len(log_U))


def _measure(world: World, score_U: Array, scale_U: Array, cutoff_U: Array) -> Row:
    half_U = np.where(np.isinf(cutoff_U), np.inf, cutoff_U * scale_U)
    lower_U, upper_U = np.maximum(score_U - half_U, 0), np.minimum(score_U + half_U, 1)
    return {
        "coverage": exact_coverage(world, lower_U, upper_U),
        "width": float((world.target_U * (upper_U - lower_U)).sum()),
        "unbounded_share": float(world.target_U[np.isinf(cutoff_U)].sum()),
    }


def replicate(design: Design, number: int, seed: int, sets_of_size: dict[int, int]) -> dict[Key, Row]:
    """Run one replicate of a design; its stream is keyed by the design's name and its number."""
    world = make_world(design)
    rng = stream(seed, "benchmark/coverage", design.name, number)
    source_N = draw_states(rng, world.source_U, design.pool_rows, design.correlation)
    reward_N = draw_rewards(rng, world, source_N, design.correlation)
    levels_NK = world.levels_UK[source_N]
    scorer = StateScorer.fit(levels_NK, reward_N, world.num_levels)
    score_U, scale_U = scorer.score(world.levels_UK), np.ones(len(world.levels_UK))
    if design.scaled:
        scale = ResidualScale.fit(levels_NK, scorer.score(levels_NK), reward_N, world.num_levels)
        scale_U = scale.scale(world.levels_UK)
    log_ratio_MU = _ratios(world, design, source_N, rng, seed + number)
    rows: dict[Key, list[Row]] = defaultdict(list)
    for size, times in sets_of_size.items():
        for _ in range(times):
            state_C = draw_states(rng, world.source_U, size, design.correlation)
            truth_C = draw_rewards(rng, world, state_C, design.correlation)
            nonconformity_C = np.abs(score_U[state_C] - truth_C) / scale_U[state_C]
            for method in METHODS:
                log_C, log_U = _log_weights(method, log_ratio_MU, state_C)
                share = effective_sample_size(log_C) / size
                for alpha in ALPHAS:
                    cutoff_U = weighted_cutoffs(nonconformity_C, log_C, log_U, alpha)
                    row = _measure(world, score_U, scale_U, cutoff_U) | {"ess_share": share}
                    rows[size, alpha, method].append(row)
    return {key: {m: float(np.mean([row[m] for row in found])) for m in MEASURES} for key, found in rows.items()}


def designs(*, quick: bool) -> tuple[Design, ...]:
    """Return the designs: a full grid of pure shifts of states, and one change at a time around its middle."""
    strengths, sizes = ((0.0, 0.8, 1.6), (8, 64)) if quick else ((0.0, 0.4, 0.8, 1.2, 1.6), (8, 64, 512))
    correlations = (0.0, 0.6) if quick else (0.0, 0.3, 0.6)
    grid = [
        Design(
            name=f"shift {strength}, {states} states, correlation {rho}",
            family="shift",
            strength=strength,
            num_states=states,
            correlation=rho,
        )
        for strength in strengths
        for states in sizes
        for rho in correlations
    ]
    middle = Design(name="", family="", strength=1.2, num_states=64, correlation=0.0)
    many = replace(middle, num_states=512, family="pool")
    changed = [
        replace(middle, name="interaction, shift 1.2", family="interaction", interaction=True),
        replace(middle, name="interaction, shift 0.8", family="interaction", interaction=True, strength=0.8),
        replace(middle, name="residual scale", family="scale", scaled=True),
        replace(middle, name="rewards 0 and 1", family="binary", reward="binary"),
        replace(middle, name="pools of 128 rows", family="pool", pool_rows=128),
        replace(many, name="pools of 256 rows, 512 states", pool_rows=256),
        replace(many, name="pools of 4096 rows, 512 states", pool_rows=4096),
        replace(middle, name="truth drifts, spread x 1.3", family="drift", drift=1.3),
    ]
    return (*grid, *([changed[0], changed[-1]] if quick else changed))
