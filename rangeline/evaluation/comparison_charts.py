"""Paired differences of a comparison as inline SVG, in the page's own style: one row a method, its interval a line."""

import math

from markupsafe import Markup

from rangeline.evaluation import report_svg as svg
from rangeline.evaluation.comparison_summary import DesignSummary, MethodSummary
from rangeline.evaluation.comparison_text import change

_WIDTH, _ROW, _TOP, _BOTTOM = 640, 30, 8, 44
_ROOM_RIGHT = 190


def difference_chart(design: DesignSummary) -> Markup:
    """Draw the reference minus each method in accuracy points, with its paired interval over seeds.

    A method whose interval holds 0 has a hollow mark, so that no colour is needed to see what was told apart.

    Returns
    -------
    Markup
        One `svg` with its numbers in words; empty where nothing can be compared.
    """
    rows = [item for item in design.methods if item.difference is not None]
    if not rows:
        return Markup("")
    left = min(220, 20 + 9.5 * max(len(item.method) for item in rows))
    low, high = _range(rows)
    right, bottom = _WIDTH - _ROOM_RIGHT, _TOP + _ROW * len(rows)

    def x(points: float) -> float:
        return left + (right - left) * (points - low) / (high - low)

    parts = []
    for value in svg.ticks(low, high):
        line = Markup('<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{}" y2="{}"/>')
        parts += [line.format(_TOP, bottom, x=x(value)), svg.text(x(value), bottom + 17, f"{value:g}")]
    parts.append(svg.target_line(x(0), _TOP, x(0), bottom))
    words = []
    for i, item in enumerate(rows):
        middle = _TOP + _ROW * (i + 0.5)
        parts.append(svg.text(left - 10, middle + 4.5, item.method, anchor="end"))
        parts.append(_mark(item, x, middle))
        parts.append(svg.text(right + 10, middle + 4.5, change(item.difference), anchor="start"))
        words.append(f"{item.method}: {change(item.difference)}")
    parts.append(svg.text((left + right) / 2, bottom + 36, f"{design.reference} minus the method (accuracy, points)"))
    said = f"Paired differences on {design.design}, points of accuracy, {design.reference} minus: {'; '.join(words)}."
    drawing = Markup('<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>')
    return drawing.format(_WIDTH, bottom + _BOTTOM, said, Markup("").join(parts))


def _range(rows: list[MethodSummary]) -> tuple[float, float]:
    """Return ends of the axis in points: round, with 0 inside."""
    known = [0.0]
    for item in rows:
        if item.difference is not None:
            ends = (item.difference.mean, item.difference.lower, item.difference.upper)
            known += [100 * value for value in ends if value is not None]
    low, high = min(known), max(known)
    high = high if high > low else low + 1
    step = svg.round_step(low, high)
    return math.floor(low / step) * step, math.ceil(high / step) * step


def _mark(item: MethodSummary, x: "svg.Place", y: float) -> Markup:
    value = item.difference
    if value is None:
        return Markup("")
    parts, apart = [], False
    if value.lower is not None and value.upper is not None:
        path = f"M{x(100 * value.lower):.1f},{y:.1f}H{x(100 * value.upper):.1f}"
        ends = "".join(f"M{x(100 * end):.1f},{y - 5:.1f}v10" for end in (value.lower, value.upper))
        parts.append(Markup('<path class="interval" d="{}"/>').format(path + ends))
        apart = value.lower > 0 or value.upper < 0
    kind = "told" if apart else "untold"
    parts.append(Markup('<circle class="{}" cx="{:.1f}" cy="{:.1f}" r="5"/>').format(kind, x(100 * value.mean), y))
    return Markup("").join(parts)
