"""The acceptance statement, tested on every cell of the study, and where it does not hold.

Computes how many cells of pure shift with an effective sample share above .2 have a coverage within .02 of nominal, and
how many shifted cells leave unweighted split conformal .05 or more below nominal.
A cell is a design, a calibration size, an alpha and a method; its coverage is the mean over replicates.
Left out: allowance for simulation noise in the verdict; cells within two standard errors of the edge are counted apart.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.coverage.study import ESTIMATED
from benchmarks.coverage.world import Design

TOLERANCE = 0.02
MIN_ESS_SHARE = 0.2
UNWEIGHTED_GAP = 0.05
SHIFTED_FROM = 0.8
"""Shift strength from which a design counts as shifted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Mean of one method on one design, size and alpha; `error` is the standard error of the coverage."""

    design: Design
    size: int
    alpha: float
    method: str
    coverage: float
    error: float
    width: float
    ess_share: float
    unbounded_share: float

    @property
    def gap(self) -> float:
        """Coverage above nominal; negative is under-coverage."""
        return self.coverage - (1 - self.alpha)

    @property
    def label(self) -> str:
        """Say which cell this is."""
        return f"{self.method}, {self.design.name}, n={self.size}, alpha={self.alpha}"


def select(cells: Sequence[Cell], keep: Callable[[Cell], bool]) -> list[Cell]:
    """Return the cells to keep."""
    return [cell for cell in cells if keep(cell)]


def eligible(cells: Sequence[Cell], family: str = "shift") -> list[Cell]:
    """Return the cells of estimated ratios that the statement speaks of."""
    return select(cells, lambda c: c.design.family == family and c.method in ESTIMATED and c.ess_share > MIN_ESS_SHARE)


def shifted_unweighted(cells: Sequence[Cell]) -> list[Cell]:
    """Return the unweighted cells of shifted designs."""
    return select(
        cells,
        lambda c: c.method == "unweighted" and c.design.family == "shift" and c.design.strength >= SHIFTED_FROM,
    )


def _worst(cells: Sequence[Cell]) -> str:
    if not cells:
        return "no cell"
    worst = max(cells, key=lambda c: abs(c.gap))
    return f"{worst.gap:+.3f} +- {worst.error:.3f} ({worst.label}, ESS share {worst.ess_share:.2f})"


def _of_true_ratio(cells: Sequence[Cell]) -> dict[tuple[str, int, float], float]:
    return {(c.design.name, c.size, c.alpha): c.gap for c in cells if c.method == "true ratio"}


def _causes(cells: Sequence[Cell], failed: Sequence[Cell]) -> str:
    true_gap = _of_true_ratio(cells)
    under = [c for c in failed if c.gap < 0]
    shared = [c for c in failed if abs(true_gap[c.design.name, c.size, c.alpha]) > TOLERANCE]
    unsure = [c for c in failed if abs(c.gap) - TOLERANCE < 2 * c.error]
    return (
        f"{len(under)} under and {len(failed) - len(under)} over nominal; with the true ratio {len(shared)} of them "
        f"are off as well; {len(unsure)} lie within two standard errors of the edge"
    )


def verdict_lines(cells: Sequence[Cell]) -> list[str]:
    """Say in words how the acceptance statement came out."""
    return [*_estimated_lines(cells, eligible(cells)), *_unweighted_lines(shifted_unweighted(cells))]


def _estimated_lines(cells: Sequence[Cell], asked: Sequence[Cell]) -> list[str]:
    failed = [c for c in asked if abs(c.gap) > TOLERANCE]
    lines = [
        f"{'FAIL' if failed else 'PASS'}: estimated ratios within {TOLERANCE} of nominal where the ESS share is above "
        f"{MIN_ESS_SHARE}: {len(asked) - len(failed)} of {len(asked)} cells; worst {_worst(asked)}."
    ]
    if failed:
        lines.append(f"Of the {len(failed)} cells outside: {_causes(cells, failed)}.")
        over = [c for c in failed if c.gap > 0]
        rows = max((c.size * c.ess_share for c in over), default=0.0)
        few = sum(c.size * c.ess_share <= 50 for c in over)
        lines.append(
            f"Over: {few} of {len(over)} have 50 effective rows (n times ESS share) or fewer, the most {rows:.0f}."
        )
    under = [c for c in asked if c.gap < -TOLERANCE]
    lowest = min(asked, key=lambda c: c.gap, default=None)
    if lowest:
        lines.append(
            f"{'FAIL' if under else 'PASS'}: the promise itself, not below nominal by more than {TOLERANCE}: "
            f"{len(asked) - len(under)} of {len(asked)} cells; lowest {_worst([lowest])}."
        )
    for states in sorted({c.design.num_states for c in asked}):
        for method in ESTIMATED:
            of_kind = [c for c in asked if c.design.num_states == states and c.method == method]
            below = [c for c in of_kind if c.gap < -TOLERANCE]
            if below:
                lines.append(f"{states} states, {method}: {len(below)} of {len(of_kind)} cells under.")
    for size in sorted({c.size for c in asked}):
        of_size = [c for c in asked if c.size == size]
        off = [c for c in of_size if abs(c.gap) > TOLERANCE]
        lines.append(
            f"n={size}: {len(of_size) - len(off)} of {len(of_size)} within, {sum(c.gap < 0 for c in off)} under, "
            f"{sum(c.gap > 0 for c in off)} over; worst {_worst(of_size)}."
        )
    for method in ESTIMATED:
        of_method = [c for c in asked if c.method == method]
        off = [c for c in of_method if abs(c.gap) > TOLERANCE]
        lines.append(f"{method}: {len(of_method) - len(off)} of {len(of_method)} within; worst {_worst(of_method)}.")
    return lines


def _unweighted_lines(plain: Sequence[Cell]) -> list[str]:
    fallen = [c for c in plain if c.gap <= -UNWEIGHTED_GAP]
    lines = [
        f"{'PASS' if len(fallen) == len(plain) else 'FAIL'}: unweighted split at least {UNWEIGHTED_GAP} below nominal "
        f"at shifts of {SHIFTED_FROM} or more: {len(fallen)} of {len(plain)} cells; "
        f"mean gap {np.mean([c.gap for c in plain]) if plain else 0.0:+.3f}."
    ]
    missed = sorted((c for c in plain if c.gap > -UNWEIGHTED_GAP), key=lambda c: -c.gap)
    if missed:
        counts = ", ".join(
            f"{sum(c.size == size for c in missed)} of n={size}" for size in sorted({c.size for c in missed})
        )
        lines.append(f"Not so far below: {counts}; nearest to nominal {missed[0].gap:+.3f} ({missed[0].label}).")
    return lines


def failures(cells: Sequence[Cell], limit: int = 20) -> list[Cell]:
    """Return the eligible cells that are furthest outside, worst first."""
    failed = [c for c in eligible(cells) if abs(c.gap) > TOLERANCE]
    return sorted(failed, key=lambda c: -abs(c.gap))[:limit]
