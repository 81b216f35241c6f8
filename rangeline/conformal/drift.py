"""Drift of the truth given the judgment state, which no weighting of states can repair.

Computes a conformal test martingale: one smoothed p-value a prompt, the place of its nonconformity score among the
rows kept so far, and a mixture of bets that p-values are uniform; an alarm is raised when the wealth reaches 1 / delta.
``p = (sum of w_j over E_j > E + u (sum of w_j over E_j = E + w)) / (sum of all w_j + w)``, u uniform, keyed by prompt.
Weights are divided by their sum, the prompt's own weight included.
Left out of the papers: nothing. Ours: by default a row is compared with rows of its own state only. The density ratio
is a function of the state and cancels there, so that the alarm is exact and cannot be set off by a poor ratio.

Shapes: N audited rollouts flat, C calibration rows, B rows kept (one a prompt), K coordinates, J bets.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from rangeline.conformal.betting import NUM_P_VALUE_BETS, log_bets_on_p_value, share_wealth
from rangeline.conformal.intervals import CalibrationSet
from rangeline.conformal.p_values import conformal_p_value
from rangeline.conformal.scorer import State
from rangeline.errors import CalibrationError
from rangeline.records import FloatArray
from rangeline.seeds import stream

Scope = Literal["state", "pooled"]

_ROWS_TO_BET = 4
"""A place among fewer rows tells nothing; the row is kept, and no bet is made. Known before the score is seen."""
_DECIMALS = 12
"""Equal scores stay equal whatever batch they were computed in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftState:
    """All that the martingale remembers; plain numbers, so that JSON keeps it exactly."""

    delta: float
    """Probability of a false alarm in the whole run, in (0, 1)."""
    seed: int
    scope: Scope
    """state: compare rows of one state. pooled: compare all rows, weighted by the density ratio."""
    num_updates: int = 0
    num_bets: int = 0
    """Prompts that were bet on."""
    levels_B: tuple[State, ...]
    """Judgment state of each kept row: first calibration rows, then audited ones, one a prompt."""
    nonconformity_B: tuple[float, ...]
    log_ratio_B: tuple[float, ...]
    """Log density ratio, over the source, of the policy that the row was sampled from; 0 for calibration rows."""
    log_wealth_J: tuple[float, ...] = (-math.log(NUM_P_VALUE_BETS),) * NUM_P_VALUE_BETS
    alarm_at: int | None = None
    """Prompts bet on when the alarm was first raised; None before. An alarm stays."""

    def __post_init__(self) -> None:
        """Check ranges and lengths, so that a damaged file is refused."""
        if not 0 < self.delta < 1 or self.scope not in get_args(Scope):
            msg = (
                f"'delta' and 'scope' must lie in (0, 1) and be state or pooled; got {self.delta}, '{self.scope}' "
                "(drift). Correct the coverage settings."
            )
            raise CalibrationError(msg)
        sizes = {len(self.levels_B), len(self.nonconformity_B), len(self.log_ratio_B)}
        numbers = (*self.nonconformity_B, *self.log_ratio_B, *self.log_wealth_J)
        if len(sizes) > 1 or len(self.log_wealth_J) != NUM_P_VALUE_BETS or not all(map(math.isfinite, numbers)):
            msg = (
                f"Kept rows must have one length, {NUM_P_VALUE_BETS} bets and finite numbers; got lengths "
                f"{sorted(sizes)}, {len(self.log_wealth_J)} bets (drift). Restore the martingale's state."
            )
            raise CalibrationError(msg)

    @property
    def log_wealth(self) -> float:
        """Log of the evidence now; the alarm is at log(1 / delta)."""
        return float(np.logaddexp.reduce(self.log_wealth_J))

    @property
    def alarm(self) -> bool:
        """Tell whether the truth given the state was ever found to have drifted."""
        return self.alarm_at is not None

    def to_json(self) -> dict[str, Any]:
        """Return the state as plain values for JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "DriftState":
        """Read what `to_json` gave, bit for bit; values out of range raise CalibrationError."""
        plain: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in content.items()}
        plain["levels_B"] = tuple(tuple(levels) for levels in content["levels_B"])
        return cls(**plain)


def _one_a_prompt(
    prompt_id_N: Sequence[str], key_N: list[tuple[float, State]], seed: int, *use: str | int
) -> list[int]:
    """Choose one row of each prompt, prompts by id; neither depends on the order of rows."""
    rows_of: dict[str, list[int]] = {}
    for i, prompt_id in enumerate(prompt_id_N):
        rows_of.setdefault(prompt_id, []).append(i)
    chosen = []
    for prompt_id in sorted(rows_of):
        rows = sorted(rows_of[prompt_id], key=lambda i: key_N[i])
        chosen.append(rows[int(stream(seed, "drift/row", *use, prompt_id).integers(len(rows)))])
    return chosen


def _checked(
    prompt_id_N: Sequence[str], levels_NK: ArrayLike, nonconformity_N: ArrayLike
) -> tuple[list[State], list[float]]:
    levels, score_N = np.asarray(levels_NK), np.asarray(nonconformity_N, dtype=np.float64)
    num = len(prompt_id_N)
    if levels.ndim != 2 or levels.dtype.kind not in "iu" or len(levels) != num or score_N.shape != (num,):
        msg = (
            f"'levels_NK' and 'nonconformity_N' must have {num} rows, the first of whole numbers; got {levels.dtype} "
            f"of shape {levels.shape} and shape {score_N.shape}. Give one state and one score a rollout."
        )
        raise CalibrationError(msg)
    bad = np.flatnonzero(~(np.isfinite(score_N) & (score_N >= 0)))
    if bad.size:
        i = int(bad[0])
        msg = (
            f"'nonconformity_N' must be finite and at least 0; got {score_N[i]} (row {i}, prompt '{prompt_id_N[i]}'). "
            "Leave out rollouts without a truth or a state."
        )
        raise CalibrationError(msg)
    return [tuple(row) for row in levels.tolist()], np.round(score_N, _DECIMALS).tolist()


def start_drift(
    calibration: CalibrationSet, *, delta: float = 0.05, seed: int = 0, scope: Scope = "state"
) -> DriftState:
    """Make the state of a run in which no audited rollout was seen: one calibration row a prompt, wealth 1.

    Parameters
    ----------
    calibration
        C labelled rows of the source policy.
    delta
        Probability of a false alarm in the whole run, in (0, 1).
    seed
        Seed of the run; chooses rows and breaks ties.
    scope
        ``state``: exact, needs no density ratio, and has no power for states that are hardly ever seen. ``pooled``:
        pools rare states, and believes in the density ratio.

    Returns
    -------
    DriftState
        Independent of the order of calibration rows.

    Raises
    ------
    CalibrationError
        A setting is out of range.
    """
    states, scores = _checked(calibration.prompt_id_C, calibration.levels_CK, calibration.nonconformity_C)
    rows = _one_a_prompt(calibration.prompt_id_C, list(zip(scores, states, strict=True)), seed, "calibration")
    return DriftState(
        delta=delta,
        seed=seed,
        scope=scope,
        levels_B=tuple(states[i] for i in rows),
        nonconformity_B=tuple(scores[i] for i in rows),
        log_ratio_B=(0.0,) * len(rows),
    )


def _log_ratios(levels: list[State], log_ratio: Callable[[ArrayLike], FloatArray] | None) -> FloatArray:
    if len(set(map(len, levels))) > 1:
        msg = (
            f"'levels_NK' must have {len(levels[0])} coordinates as the kept rows; got {len(levels[-1])}. "
            "Use the rubric that the judgments were made with."
        )
        raise CalibrationError(msg)
    if log_ratio is None:
        return np.zeros(len(levels))
    value_B = np.asarray(log_ratio(np.array(levels, dtype=np.int64)), dtype=np.float64)
    bad = np.flatnonzero(~np.isfinite(value_B))
    if bad.size:
        i = int(bad[0])
        msg = f"'log_ratio' must be finite; got {value_B[i]} (state {levels[i]}). Cap the density ratio."
        raise CalibrationError(msg)
    return value_B


def update_drift(
    state: DriftState,
    prompt_id_N: Sequence[str],
    *,
    iteration: int,
    levels_NK: ArrayLike,
    nonconformity_N: ArrayLike,
    log_ratio: Callable[[ArrayLike], FloatArray] | None = None,
) -> DriftState:
    """Take in the audited rollouts of one iteration: one of each prompt, prompts by id; look once, at the end.

    Parameters
    ----------
    state
        What was remembered.
    prompt_id_N
        [N] prompt of each rollout; those without a truth or a state are left out by the caller. None: no change.
    iteration
        Number of the iteration; with the seed and the prompt's id it keys the choice of the row and its tie-break.
    levels_NK
        [N, K] judgment states.
    nonconformity_N
        [N] ``|score - truth| / scale``, by the rule of the calibration set.
    log_ratio
        Log density ratio of this iteration's policy over the source, as `DensityRatio.log_ratio`; needed for the pooled
        scope, and only there.

    Returns
    -------
    DriftState
        The same, bit for bit, whatever the order of rows.

    Raises
    ------
    CalibrationError
        A score is NaN, infinite or negative (the message names row and prompt), lengths differ, or a log ratio is not
        finite, is missing in the pooled scope or is given in the other.

    Notes
    -----
    Vovk, Gammerman and Shafer (2005), conformal test martingales; Vovk et al. (2021), retraining alarms. In the state
    scope p-values of distinct prompts are independent and uniform as long as the truth given the state stays as it was,
    however much states shift: the false-alarm probability is at most delta (Ville). The pooled scope weighs each kept
    row by this policy's density over that of the policy it came from (ours): exact without a shift, approximate with
    one, and only as right as the ratio. A prompt that comes back is no new evidence in either. Audited rows join the
    kept ones, so that a drift that is not found soon becomes the habit.
    """
    if (state.scope == "pooled") != (log_ratio is not None):
        msg = (
            f"'log_ratio' must be given exactly for the pooled scope; got scope '{state.scope}' (drift, iteration "
            f"{iteration}). Correct the call."
        )
        raise CalibrationError(msg)
    states, scores = _checked(prompt_id_N, levels_NK, nonconformity_N)
    if not states:
        return state
    rows = _one_a_prompt(prompt_id_N, list(zip(scores, states, strict=True)), state.seed, iteration)
    num_kept = len(state.levels_B)
    levels = [*state.levels_B, *(states[i] for i in rows)]
    score_B = np.array([*state.nonconformity_B, *(scores[i] for i in rows)])
    now_B = _log_ratios(levels, log_ratio)
    log_ratio_B = np.concatenate([state.log_ratio_B, now_B[num_kept:]])
    like_BB = [[state.scope == "pooled" or one == other for other in levels] for one in levels[num_kept:]]
    log_wealth_J, num_bets = share_wealth(state.log_wealth_J, state.num_updates), state.num_bets
    for j, (i, like) in enumerate(zip(rows, like_BB, strict=True), start=num_kept):
        others = np.flatnonzero(like[:j])
        if len(others) < _ROWS_TO_BET:
            continue
        p_value = conformal_p_value(
            float(score_B[j]),
            0.0,
            score_B=score_B[others],
            log_weight_B=(now_B - log_ratio_B)[others],
            uniform=1 - float(stream(state.seed, "drift/tie", iteration, prompt_id_N[i]).random()),
        )
        log_wealth_J, num_bets = log_wealth_J + log_bets_on_p_value(p_value), num_bets + 1
    alarmed = state.alarm_at is None and float(np.logaddexp.reduce(log_wealth_J)) >= -math.log(state.delta)
    return replace(
        state,
        num_updates=state.num_updates + 1,
        num_bets=num_bets,
        levels_B=tuple(levels),
        nonconformity_B=tuple(score_B.tolist()),
        log_ratio_B=tuple(log_ratio_B.tolist()),
        log_wealth_J=tuple(log_wealth_J.tolist()),
        alarm_at=num_bets if alarmed else state.alarm_at,
    )
