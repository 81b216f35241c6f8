"""A simulated world whose coverage is known exactly: states, their shift, rewards given the state, prompts that agree.

Computes laws of states under the source and the target, draws of clustered rows, and the coverage of given intervals.
The target is the source tilted by ``exp(strength d(z))``, d of mean 0 and standard deviation 1 under the source; a
reward is ``m(z) + r(z) T``, T triangular on [-1, 1], and the spread r grows with d, so that unweighted cutoffs miss.
Coverage is summed over states by the exact law of rewards, so that no test rows are drawn and none add noise.
Left out: text, judges and training; rows of one prompt share a state with probability rho, and their T has a Gaussian
copula of correlation rho.

Shapes: U states of the world, K coordinates, N rows.
"""

import math
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

Array = NDArray[np.float64]
Reward = Literal["continuous", "binary"]

LEVELS = {8: (4, 2), 64: (4, 4, 4), 512: (8, 8, 8)}
"""Levels of each coordinate, by the number of states."""
ROLLOUTS = 8
"""Rollouts of one prompt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """One setting of the study; calibration sizes and alphas are nested in it."""

    name: str
    family: str
    """`shift` (the acceptance statement), or what is changed: interaction, scale, binary, pool, drift."""
    strength: float
    """Standard deviation of the log density ratio under the source."""
    num_states: int
    correlation: float
    pool_rows: int = 1024
    """Rows of the source pool, and of the ratio pool."""
    interaction: bool = False
    """The tilt is a product of two coordinates, which no additive classifier can see."""
    scaled: bool = False
    """Scores are divided by the residual scale of the state."""
    reward: Reward = "continuous"
    drift: float = 1.0
    """The target's spread over the source's, given the state; 1 is pure shift of states."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class World:
    """The laws of one design."""

    levels_UK: NDArray[np.int64]
    num_levels: tuple[int, ...]
    source_U: Array
    target_U: Array
    log_ratio_U: Array
    mean_U: Array
    spread_U: Array
    target_spread_U: Array
    reward: Reward = field(default="continuous")

    @property
    def ess_share(self) -> float:
        """Effective share of source rows under the true ratio, in the population."""
        return float(1 / (self.target_U * np.exp(self.log_ratio_U)).sum())


def _standardise(values_U: Array, share_U: Array) -> Array:
    centred_U = values_U - (share_U * values_U).sum()
    return np.asarray(centred_U / math.sqrt((share_U * centred_U**2).sum()))


def make_world(design: Design) -> World:
    """Make the laws of one design; nothing in it is random."""
    num_levels = LEVELS[design.num_states]
    grids = np.meshgrid(*[np.arange(num) for num in num_levels], indexing="ij")
    levels_UK = np.stack([grid.reshape(-1) for grid in grids], axis=1)
    position_UK = 2 * levels_UK / (np.asarray(num_levels) - 1) - 1
    additive_U, product_U = position_UK.sum(axis=1), position_UK[:, 0] * position_UK[:, 1]
    source_U = np.exp(-0.3 * additive_U)
    source_U /= source_U.sum()
    tilt_U = _standardise(product_U if design.interaction else additive_U, source_U)
    target_U = source_U * np.exp(design.strength * tilt_U)
    target_U /= target_U.sum()
    binary = design.reward == "binary"
    mean_U = 0.5 + (0.45 if binary else 0.2) * np.tanh(0.7 * _standardise(additive_U, source_U) + 0.5 * product_U)
    spread_U = 0.04 + 0.26 / (1 + np.exp(-1.2 * tilt_U))
    return World(
        levels_UK=levels_UK,
        num_levels=num_levels,
        source_U=source_U,
        target_U=target_U,
        log_ratio_U=np.log(target_U) - np.log(source_U),
        mean_U=mean_U,
        spread_U=spread_U,
        target_spread_U=spread_U * design.drift,
        reward=design.reward,
    )


def draw_states(rng: np.random.Generator, share_U: Array, num: int, correlation: float) -> NDArray[np.int64]:
    """Return [num] states; rows of one prompt take the prompt's own state with the probability of the correlation."""
    prompt_N = np.arange(num) // ROLLOUTS
    cumulative_U = np.cumsum(share_U)
    own_N = np.searchsorted(cumulative_U, rng.random(num) * cumulative_U[-1], side="right")
    shared_P = np.searchsorted(cumulative_U, rng.random(prompt_N[-1] + 1) * cumulative_U[-1], side="right")
    return np.asarray(np.where(rng.random(num) < correlation, shared_P[prompt_N], own_N))


def draw_rewards(rng: np.random.Generator, world: World, state_N: NDArray[np.int64], correlation: float) -> Array:
    """Return [N] source rewards of the states, rows of one prompt correlated."""
    prompt_N = np.arange(len(state_N)) // ROLLOUTS
    shared_P = rng.normal(size=prompt_N[-1] + 1)
    normal_N = math.sqrt(correlation) * shared_P[prompt_N] + math.sqrt(1 - correlation) * rng.normal(size=len(state_N))
    share_N = ndtr(normal_N)
    if world.reward == "binary":
        return np.asarray(share_N < world.mean_U[state_N], dtype=np.float64)
    low_N, high_N = np.sqrt(2 * share_N) - 1, 1 - np.sqrt(2 * (1 - share_N))
    return np.asarray(world.mean_U[state_N] + world.spread_U[state_N] * np.where(share_N < 0.5, low_N, high_N))


def _triangular(value_U: Array) -> Array:
    inside_U = np.clip(value_U, -1, 1)
    return np.where(inside_U < 0, (1 + inside_U) ** 2 / 2, 1 - (1 - inside_U) ** 2 / 2)


def exact_coverage(world: World, lower_U: Array, upper_U: Array) -> float:
    """Return the probability that a target reward lies in the interval of its state."""
    if world.reward == "binary":
        inside_U = world.mean_U * (upper_U >= 1 - 1e-9) + (1 - world.mean_U) * (lower_U <= 1e-9)
    else:
        ends = [(bound - world.mean_U) / world.target_spread_U for bound in (lower_U, upper_U)]
        inside_U = _triangular(ends[1]) - _triangular(ends[0])
    return float((world.target_U * inside_U).sum())
