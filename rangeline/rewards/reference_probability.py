"""RLPR: reward a rollout by how likely the reference answer is after its reasoning.

It computes one reward a rollout from the probabilities of the reference's tokens, with and without the reasoning.
reward = clip(r - r', 0, 1), r = mean_t pi(y*_t | x, z, y*_<t), r' the same without z under the initial policy.
The mean is over the n tokens of the reference alone; the ablations take their product, or its n-th root.
Left out of the paper: nothing; ours are the choice among several references, and that a rollout whose answer was cut
off or is ambiguous is missing, while a whole rollout without reasoning or answer gets 0.

Shapes: N rollouts flat, T tokens of a reference.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from rangeline.errors import ConfigError
from rangeline.records import BoolArray, FloatArray, RewardIntervals
from rangeline.rewards.source import point_intervals

Aggregate = Literal["mean", "product", "root"]
_WINDOW = 10
"""Words of a repeated passage."""
_MAX_REPEATS = 10


def aggregate_probabilities(logprob_T: FloatArray, how: Aggregate = "mean") -> float:
    """Make one number of the probabilities of a reference's tokens.

    Parameters
    ----------
    logprob_T
        Log-probabilities of T tokens, at least one; NaN gives NaN.
    how
        `mean` of the probabilities, their `product`, or its T-th `root`.

    Returns
    -------
    float
        In [0, 1].

    Raises
    ------
    ConfigError
        When there is no token or `how` is unknown.

    Notes
    -----
    RLPR eq. 2 (mean) and Table 3 (product); the root is the normalised sequence likelihood it compares with.

    Examples
    --------
    >>> p = np.log([0.01, 0.7, 0.9])
    >>> round(aggregate_probabilities(p), 3), round(aggregate_probabilities(p, "product"), 4)
    (0.537, 0.0063)
    """
    if len(logprob_T) == 0:
        msg = "'logprob_T' must hold at least one token; got 0. Refuse empty references when data is read."
        raise ConfigError(msg)
    if how == "mean":
        return float(np.exp(logprob_T).mean())
    if how == "product":
        return float(np.exp(logprob_T.sum()))
    if how == "root":
        return float(np.exp(logprob_T.mean()))
    msg = f"'aggregate' must be mean, product or root; got '{how}'. Correct reward.reference_probability."
    raise ConfigError(msg)


def combine_references(gain_R: Sequence[float], how: Literal["best", "mean"]) -> float:
    """Return the best or the mean gain over the references that could be scored; NaN where none could."""
    finite = [value for value in gain_R if np.isfinite(value)]
    if not finite:
        return float("nan")
    return float(max(finite) if how == "best" else np.mean(finite))


def count_repeats(text: str) -> int:
    """Return how many passages of ten words occur again in a text, at most 10.

    Examples
    --------
    >>> count_repeats("one two three four five six seven eight nine ten " * 2)
    1
    """
    words = text.split()
    windows = [tuple(words[i : i + _WINDOW]) for i in range(0, len(words) - _WINDOW + 1)]
    return min(len(windows) - len(set(windows)), _MAX_REPEATS)


def reference_intervals(
    prompt_id_N: Sequence[str],
    gain_N: FloatArray,
    *,
    well_formed_N: BoolArray,
    missing_N: BoolArray,
    format_weight: float = 0.0,
) -> RewardIntervals:
    """Make zero-width intervals from what the reasoning gained the reference.

    ``reward = (1 - w) clip(gain, 0, 1) + w [well formed]``.

    Parameters
    ----------
    prompt_id_N
        Prompt of each rollout.
    gain_N
        r - r', or r where nothing is subtracted; read at well-formed rollouts only, where NaN is missing.
    well_formed_N
        True where there is reasoning and an answer after it; the others gain 0.
    missing_N
        True where no reward can be made.
    format_weight
        w, in [0, 1]; 0 leaves the format out.

    Returns
    -------
    RewardIntervals
        Source `reference_probability`, support [0, 1].

    Notes
    -----
    RLPR eqs. 2 and 3; the format weight, .1, is in its public code.
    """
    base_N = np.where(well_formed_N, np.clip(gain_N, 0.0, 1.0), 0.0)
    reward_N = (1.0 - format_weight) * base_N + format_weight * well_formed_N
    return point_intervals(
        prompt_id_N, reward_N, support=(0.0, 1.0), source="reference_probability", missing_N=missing_N
    )


def add_terms(
    intervals: RewardIntervals,
    *,
    repeats_N: Sequence[int],
    repetition_penalty: float = 0.0,
    verified_N: FloatArray,
    verifier_weight: float = 0.0,
) -> RewardIntervals:
    """Add the repetition penalty and the verifier's reward: ``reward - penalty * repeats + v * verified``.

    Parameters
    ----------
    intervals
        Of zero width, support [0, 1].
    repeats_N
        Repeated passages of each rollout, at most 10.
    repetition_penalty, verifier_weight
        penalty and v, at least 0; 0 leaves the term out.
    verified_N
        The verifier's rewards; NaN is missing where v is positive.

    Returns
    -------
    RewardIntervals
        Support wider by what the two terms can add.

    Notes
    -----
    The sum with the verifier is RLPR's Table 4. Its public code has a penalty on repeated passages; that a passage is
    ten words and counts ten times at most is ours.
    """
    reward_N = intervals.lower_N - repetition_penalty * np.asarray(repeats_N, dtype=np.float64)
    if verifier_weight:
        reward_N = reward_N + verifier_weight * verified_N
    return point_intervals(
        intervals.prompt_id_N,
        reward_N,
        support=(-repetition_penalty * _MAX_REPEATS, 1.0 + verifier_weight),
        source=intervals.source,
        missing_N=intervals.missing_N,
    )
