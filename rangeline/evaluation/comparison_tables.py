"""Two tables of a comparison: accuracy of every method on every design, and what turned signs were worth.

The first has the form of Table 1 of the Range-GRPO paper, the second that of its Table 3.
"""

from collections.abc import Sequence

from rangeline.evaluation.comparison_statistics import FlipCount
from rangeline.evaluation.comparison_summary import DesignSummary, MethodSummary
from rangeline.evaluation.comparison_text import percent
from rangeline.evaluation.report_text import DASH, count_text

Table = tuple[list[str], list[list[str]]]
"""Header and rows."""

_FLIP_COLUMNS = ["method", "credited", "turned", "share", "towards the truth", "away from it", "right % by seed"]


def accuracy_table(designs: Sequence[DesignSummary]) -> Table:
    """Return one row a method and one column a design: accuracy in percent, one standard error over seeds.

    The highest of a column carries a star; a difference to it may well be noise, which the paired intervals tell.
    """
    names = list(dict.fromkeys(item.method for design in designs for item in design.methods))
    columns = []
    for design in designs:
        by_name = {item.method: item for item in design.methods}
        known = [item.accuracy.mean for item in design.methods if item.accuracy.mean is not None]
        best = max(known, default=None)
        columns.append([_accuracy(by_name.get(name), best) for name in names])
    return ["method", *(design.design for design in designs)], [list(row) for row in zip(names, *columns, strict=True)]


def _accuracy(item: MethodSummary | None, best: float | None) -> str:
    if item is None:
        return DASH
    star = " ★" if best is not None and item.accuracy.mean == best else ""
    return f"{percent(item.accuracy)}{star}"


def flip_table(design: DesignSummary) -> Table:
    """Return one row a method: how many signs of credit were turned against the midpoint, and which way.

    Turned signs whose true reward equals its group's mean, or is not known, are in neither of the two ways. Methods
    that turned none, the midpoint itself among them, are left out.
    """
    rows = [
        [item.method, *_flips(item.flips), percent(item.flips_right)] for item in design.methods if item.flips.num_flips
    ]
    return list(_FLIP_COLUMNS), rows


def _flips(value: FlipCount) -> list[str]:
    share = f"{100 * value.num_flips / value.num_credited:.1f} %" if value.num_credited else DASH
    ways = [count_text(value.num_agree), count_text(value.num_disagree)]
    return [count_text(value.num_credited), count_text(value.num_flips), share, *ways]
