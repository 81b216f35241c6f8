"""Coverage watched through a whole run: an alarm that may be looked at after every iteration.

Computes two e-processes on per-prompt miss rates x, for "the mean is at most alpha" and "the mean is at least alpha".
Each is a mixture of bets, ``wealth_c = product of (1 + c (x / alpha - 1))`` (for the second, 1 - x and 1 - alpha), and
an alarm is raised when a mixture reaches ``2 / delta``: by Ville's inequality at most delta false ones in a whole run.
Wealth is divided by the wealth at the start, 1; miss rates are divided by the valid rollouts of their prompt.
Left out of the papers: bets that learn from the past. A fixed grid with a little wealth moved back to it before each
update finds late changes as well, is short to store, and does not depend on the order of prompts in an iteration.

Shapes: P prompts of one update, K bets, D distinct miss rates.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from rangeline.conformal.betting import EVEN_LOG_WEALTH_K, NUM_BETS, log_gain, lower_limit, share_wealth
from rangeline.errors import CalibrationError
from rangeline.records import FloatArray

MonitorStatus = Literal["covered", "under_coverage", "over_coverage", "too_little_evidence"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitorState:
    """All that the monitor remembers; plain numbers, so that JSON keeps it exactly."""

    alpha: float
    """Miss rate that is promised, in (0, 1)."""
    delta: float
    """Probability of any false alarm in the whole run, in (0, 1)."""
    tolerance: float
    """Positive; "covered" is said once a mean miss rate of alpha + tolerance is excluded."""
    num_updates: int = 0
    miss_counts_D2: tuple[tuple[float, int], ...] = ()
    """Miss rate and number of prompts with it, ascending."""
    log_wealth_under_K: tuple[float, ...]
    log_wealth_over_K: tuple[float, ...]
    under_at: int | None = None
    """Prompts seen when under-coverage was first alarmed; None before. An alarm stays."""
    over_at: int | None = None

    def __post_init__(self) -> None:
        """Check ranges, so that a damaged file is refused."""
        for name in ("alpha", "delta"):
            _require_share(name, getattr(self, name))
        if not 0 < self.tolerance < 1 - self.alpha:
            msg = (
                f"'tolerance' must lie in (0, {1 - self.alpha}); got {self.tolerance} (monitor). "
                "Correct the coverage settings."
            )
            raise CalibrationError(msg)
        for name in ("log_wealth_under_K", "log_wealth_over_K"):
            wealth = getattr(self, name)
            if len(wealth) != NUM_BETS or not all(map(math.isfinite, wealth)):
                msg = f"'{name}' must hold {NUM_BETS} finite numbers; got {wealth}. Restore the monitor's state."
                raise CalibrationError(msg)
        for value, count in self.miss_counts_D2:
            if not 0 <= value <= 1 or count < 1:
                msg = (
                    "'miss_counts_D2' must hold rates in [0, 1] with counts of 1 or more; "
                    f"got {(value, count)}. Restore the monitor's state."
                )
                raise CalibrationError(msg)

    @property
    def num_prompts(self) -> int:
        """Prompts observed so far."""
        return sum(count for _, count in self.miss_counts_D2)

    def to_json(self) -> dict[str, Any]:
        """Return the state as plain values for JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "MonitorState":
        """Read what `to_json` gave, bit for bit; values out of range raise CalibrationError."""
        plain: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in content.items()}
        plain["miss_counts_D2"] = tuple((value, count) for value, count in content["miss_counts_D2"])
        return cls(**plain)


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitorVerdict:
    """What the monitor says of the run so far."""

    status: MonitorStatus
    lower: float
    upper: float
    """Interval of the mean miss rate at confidence 1 - delta, valid at all looks together."""
    mean_miss: float | None
    """Mean over prompts of their miss rate; None before the first prompt."""
    num_prompts: int
    log_e_under: float
    log_e_over: float
    """Log evidence now against "at most alpha" and "at least alpha"; the alarm is at log(2 / delta)."""
    under_at: int | None
    over_at: int | None
    """Prompts seen when each alarm was first raised."""


def _require_share(name: str, value: float) -> None:
    if not 0 < value < 1:
        msg = f"'{name}' must lie in (0, 1); got {value} (monitor). Correct the coverage settings."
        raise CalibrationError(msg)


def start_monitor(*, alpha: float, delta: float = 0.05, tolerance: float = 0.1) -> MonitorState:
    """Make the state of a run in which nothing was seen.

    Parameters
    ----------
    alpha
        Miss rate that is promised, in (0, 1).
    delta
        Probability of any false alarm in the whole run, in (0, 1); half for each side.
    tolerance
        Excess over alpha that has to be excluded before the run is called covered, in (0, 1 - alpha).

    Returns
    -------
    MonitorState
        Wealth 1 on each side, spread over all bets.

    Raises
    ------
    CalibrationError
        A setting is out of range.
    """
    return MonitorState(
        alpha=alpha,
        delta=delta,
        tolerance=tolerance,
        log_wealth_under_K=EVEN_LOG_WEALTH_K,
        log_wealth_over_K=EVEN_LOG_WEALTH_K,
    )


def update(state: MonitorState, missed_P: ArrayLike, *, prompt_id_P: Sequence[str] | None = None) -> MonitorState:
    """Take in the miss rates of one iteration's prompts; look at the evidence once, at its end.

    Parameters
    ----------
    state
        What was remembered.
    missed_P
        [P] share of each prompt's valid rollouts whose truth lies outside its interval, in [0, 1], one a prompt.
        Prompts without a valid rollout are left out by the caller. No prompt: the state is given back as it was.
    prompt_id_P
        [P] distinct ids, used for messages only.

    Returns
    -------
    MonitorState
        The same, bit for bit, whatever the order of prompts.

    Raises
    ------
    CalibrationError
        A rate is NaN or outside [0, 1], a prompt comes twice, or lengths differ. The message names the prompt.

    Notes
    -----
    Waudby-Smith and Ramdas (2024), betting; Ville (1939). The promise is for prompts whose expected miss rate, given
    all that was seen before, is at most (at least) alpha; it may drift on that side. Two limits follow. A calibration
    set of n rows has its own coverage, spread as `calibration_band` tells, and the monitor judges that one. A prompt
    that comes back in a later iteration is no new evidence: feed prompts that the run has not audited before.

    Examples
    --------
    >>> state = update(start_monitor(alpha=0.1), [0.0, 0.25, 0.0, 0.125])
    >>> verdict(state).status, state.num_prompts
    ('too_little_evidence', 4)
    """
    miss_P = _checked(missed_P, prompt_id_P)
    if not len(miss_P):
        return state
    under_K = share_wealth(state.log_wealth_under_K, state.num_updates) + log_gain(miss_P, state.alpha)
    over_K = share_wealth(state.log_wealth_over_K, state.num_updates) + log_gain(1 - miss_P, 1 - state.alpha)
    counts = Counter(dict(state.miss_counts_D2))
    counts.update(miss_P.tolist())
    num_prompts = state.num_prompts + len(miss_P)
    threshold = math.log(2 / state.delta)

    def first(at: int | None, log_wealth_K: FloatArray) -> int | None:
        return num_prompts if at is None and float(np.logaddexp.reduce(log_wealth_K)) >= threshold else at

    return replace(
        state,
        num_updates=state.num_updates + 1,
        miss_counts_D2=tuple(sorted(counts.items())),
        log_wealth_under_K=tuple(under_K.tolist()),
        log_wealth_over_K=tuple(over_K.tolist()),
        under_at=first(state.under_at, under_K),
        over_at=first(state.over_at, over_K),
    )


def _checked(missed_P: ArrayLike, prompt_id_P: Sequence[str] | None) -> FloatArray:
    miss_P = np.asarray(missed_P, dtype=np.float64)
    if miss_P.ndim != 1 or (prompt_id_P is not None and len(prompt_id_P) != len(miss_P)):
        ids = "no" if prompt_id_P is None else len(prompt_id_P)
        msg = (
            f"'missed_P' must have one value a prompt; got shape {miss_P.shape} for {ids} ids. Average by prompt first."
        )
        raise CalibrationError(msg)
    names = (
        [f"number {i}" for i in range(len(miss_P))] if prompt_id_P is None else [f"'{name}'" for name in prompt_id_P]
    )
    bad = np.flatnonzero(~((miss_P >= 0) & (miss_P <= 1)))
    if bad.size:
        i = int(bad[0])
        msg = f"'missed_P' must lie in [0, 1]; got {miss_P[i]} (prompt {names[i]}). Leave out prompts without a truth."
        raise CalibrationError(msg)
    name, times = Counter(names).most_common(1)[0] if names else ("", 0)
    if times > 1:
        msg = f"'prompt_id_P' must be distinct; got {times} times prompt {name}. Average its rollouts first."
        raise CalibrationError(msg)
    return miss_P


def verdict(state: MonitorState) -> MonitorVerdict:
    """Say what the evidence so far amounts to, with the running interval of the mean miss rate.

    Parameters
    ----------
    state
        What is remembered.

    Returns
    -------
    MonitorVerdict
        ``under_coverage`` once that alarm was raised, else ``over_coverage`` once that one was; else ``covered`` when
        the interval lies below alpha + tolerance, else ``too_little_evidence``.

    Notes
    -----
    The interval inverts the fixed mixture, without sharing, over a grid of means (Waudby-Smith and Ramdas, 2024): it
    is for prompts of one mean, and [0, 1] before the first. Where the mean changed late, the alarm can be raised while
    the interval still holds alpha. That alarms stay, and the tolerance, are ours.
    """
    threshold = math.log(2 / state.delta)
    lower, upper, mean = 0.0, 1.0, None
    if state.miss_counts_D2:
        miss_D = np.array([value for value, _ in state.miss_counts_D2])
        count_D = np.array([float(count) for _, count in state.miss_counts_D2])
        lower = lower_limit(miss_D, count_D, log_threshold=threshold)
        upper = 1 - lower_limit(1 - miss_D, count_D, log_threshold=threshold)
        mean = float(miss_D @ count_D / count_D.sum())
    status: MonitorStatus = "covered" if upper < state.alpha + state.tolerance else "too_little_evidence"
    if state.under_at is not None:
        status = "under_coverage"
    elif state.over_at is not None:
        status = "over_coverage"
    return MonitorVerdict(
        status=status,
        lower=lower,
        upper=upper,
        mean_miss=mean,
        num_prompts=state.num_prompts,
        log_e_under=float(np.logaddexp.reduce(state.log_wealth_under_K)),
        log_e_over=float(np.logaddexp.reduce(state.log_wealth_over_K)),
        under_at=state.under_at,
        over_at=state.over_at,
    )
