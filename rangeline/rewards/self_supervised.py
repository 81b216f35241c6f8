"""Rewards that a policy reads off its own probabilities: self-certainty, token entropy, sequence likelihood.

It computes one number a rollout from the policy's distributions at the rollout's tokens.
self_certainty = mean_t KL(uniform || pi_t); token_entropy = -sum_t H(pi_t); sequence_likelihood = sum_t log pi(o_t).
Only self-certainty divides, by the rollout's number of tokens, its end-of-sequence included.
Left out of the papers: baselines of their own, since the advantage estimator subtracts one. The papers'
"sentence-level entropy" is taken to be the sequence's log-likelihood, a mapping of ours. A completion that was cut off
is scored as far as it goes; an empty one is missing.

Shapes: N rollouts flat, T tokens of one rollout.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from rangeline.errors import ConfigError
from rangeline.records import FloatArray, RewardIntervals
from rangeline.rewards.source import point_intervals

Measure = Literal["self_certainty", "token_entropy", "sequence_likelihood"]


def measure(statistics_T3: FloatArray, what: Measure) -> float:
    """Return one measure of a rollout.

    Parameters
    ----------
    statistics_T3
        Log-probability, entropy and KL(uniform || pi) at each token.
    what
        Name of the measure.

    Returns
    -------
    float
        NaN without tokens.

    Raises
    ------
    ConfigError
        When the measure is unknown.
    """
    if len(statistics_T3) == 0:
        return float("nan")
    if what == "self_certainty":
        return float(statistics_T3[:, 2].mean())
    if what == "token_entropy":
        return float(-statistics_T3[:, 1].sum())
    if what == "sequence_likelihood":
        return float(statistics_T3[:, 0].sum())
    msg = f"'what' must be self_certainty, token_entropy or sequence_likelihood; got '{what}'. Choose one of them."
    raise ConfigError(msg)


def self_supervised_intervals(
    prompt_id_N: Sequence[str], statistics_N: Sequence[FloatArray | None], what: Measure
) -> RewardIntervals:
    """Make zero-width intervals of one measure.

    Parameters
    ----------
    prompt_id_N
        Prompt of each rollout.
    statistics_N
        Statistics of each rollout's tokens; None where the policy could not read it.
    what
        Name of the measure, which names the source.

    Returns
    -------
    RewardIntervals
        Without support; missing where the measure is not a finite number.

    Notes
    -----
    Self-certainty: Zhao et al. (2026). Entropies: Agarwal et al. (2025).
    """
    value_N = np.array([np.nan if item is None else measure(item, what) for item in statistics_N], dtype=np.float64)
    return point_intervals(prompt_id_N, value_N, support=None, source=what)
