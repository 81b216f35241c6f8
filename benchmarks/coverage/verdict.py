"""The acceptance statement, tested on every cell of the study, and where it does not hold.

Computes how many cells of pure shift with an effective sample share above .2 have a coverage within .02 of nominal: all
of them, those of 50 effective rows or more, from below only, and against the true ratio in place of nominal; and how
many shifted cells leave unweighted split conformal .05 or more below nominal.
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
MIN_EFFECTIVE_ROWS = 50
"""A test point's own mass is one effective row: with fewer, even the true ratio covers more than .02 above nominal."""
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
    def effective_rows(self) -> float:
        """Calibration rows times the effective share."""
        return self.size * self.ess_share

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


def excess_of(cells: Sequence[Cell]) -> Callable[[Cell], float]:
    """Return the coverage of a cell above that of the true ratio on the same draws."""
    true = {(c.design.name, c.size, c.alpha): c.coverage for c in cells if c.method == "true ratio"}
    return lambda c: c.coverage - true[c.design.name, c.size, c.alpha]


def verdict_lines(cells: Sequence[Cell]) -> list[str]:
    """Say in words how the acceptance statement came out: as written, then what is left of it without each cause."""
    asked = eligible(cells)
    excess = excess_of(cells)
    many = select(asked, lambda c: c.effective_rows >= MIN_EFFECTIVE_ROWS)
    rows = f"of {MIN_EFFECTIVE_ROWS} effective rows or more (n times ESS share)"
    where = f"where the ESS share is above {MIN_ESS_SHARE}"
    statements = (
        (f"(i) estimated ratios within {TOLERANCE} of nominal {where}", asked, _gap, abs),
        (f"(ii) the same, cells {rows}", many, _gap, abs),
        (f"(iii) not below nominal by more than {TOLERANCE} {where}", asked, _gap, _shortfall),
        (f"(iv) coverage within {TOLERANCE} of that of the true ratio {where}", asked, excess, abs),
    )
    lines = [line for statement in statements for line in _statement_lines(*statement)]
    return [*lines, *_unweighted_lines(shifted_unweighted(cells))]


def _gap(cell: Cell) -> float:
    return cell.gap


def _shortfall(difference: float) -> float:
    return -difference


def _statement_lines(
    words: str, asked: Sequence[Cell], of: Callable[[Cell], float], size: Callable[[float], float]
) -> list[str]:
    """Say whether a statement holds, and for each method how often, where it does not, and its worst cell."""
    failed = [c for c in asked if size(of(c)) > TOLERANCE]
    lines = [f"{'FAIL' if failed else 'PASS'}: {words}: {len(asked) - len(failed)} of {len(asked)} cells."]
    for method in ESTIMATED:
        own = [c for c in asked if c.method == method]
        if not own:
            continue
        off = [c for c in own if size(of(c)) > TOLERANCE]
        worst = max(own, key=lambda c: size(of(c)))
        lines.append(
            f"{words.split()[0]} {method}: {len(own) - len(off)} of {len(own)}{_places(off, of)}; worst "
            f"{of(worst):+.3f} +- {worst.error:.3f} ({worst.label}, ESS share {worst.ess_share:.2f})."
        )
    return lines


def _places(off: Sequence[Cell], of: Callable[[Cell], float]) -> str:
    """Say on which side, at which sizes and numbers of states, the cells lie that are outside."""
    if not off:
        return ""
    under = sum(of(c) < 0 for c in off)
    by_size = ", ".join(f"{sum(c.size == n for c in off)} of n={n}" for n in sorted({c.size for c in off}))
    states = sorted({c.design.num_states for c in off})
    by_states = ", ".join(f"{sum(c.design.num_states == num for c in off)} of {num} states" for num in states)
    return f"; {under} below and {len(off) - under} above: {by_size}; {by_states}"


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
