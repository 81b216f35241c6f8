"""Charts of the report page as inline SVG, drawn from plain numbers.

A chart carries its title, axis labels with units, a legend of markers and dashes that needs no colour, and its key
numbers in words for readers who do not see it. A value of None leaves a gap. Colours come from the page's style, so
that one drawing serves a light and a dark page.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from rangeline.evaluation import report_svg as svg
from rangeline.evaluation.report_svg import Values
from rangeline.evaluation.report_text import number_text, share_text, visible


@dataclass(frozen=True, slots=True, kw_only=True)
class LinePlot:
    """What a line chart over iterations shows."""

    title: str
    y_label: str
    """With its unit."""
    iterations: Sequence[float]
    lines: Sequence[tuple[str, Values]]
    """At most four names with one value an iteration; the position sets marker and dash."""
    note: str
    """How to read it, one or two sentences."""
    is_share: bool = True
    """Whether values are shares, written in percent."""
    band: tuple[Values, Values] | None = None
    bounds: tuple[Values, Values] | None = None
    """Two thin lines with `bounds_name` in the legend."""
    bounds_name: str = "bounds"
    target: float | None = None
    marks: Sequence[str] = ()
    """One an iteration, written above the axis; empty where there is nothing to say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationPoint:
    """What was promised of some rows, and what was true."""

    series: str
    """Of the first two, the second has squares."""
    label: str
    predicted: float
    observed: float
    lower: float | None
    """Of a band of `observed`; None, like `upper`, for no band."""
    upper: float | None
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One bar."""

    name: str
    value: float
    """Not negative."""
    is_part: bool = False
    """Whether it is part of the bar before: it is thinner, and does not count again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A drawn chart, ready for the page."""

    title: str
    drawing: Markup
    legend: tuple[tuple[Markup, str], ...]
    """Swatch and words."""
    note: str


def line_chart(plot: LinePlot) -> Chart:
    """Draw lines over iterations, with an optional band and target; without values the frame stays empty."""
    write = share_text if plot.is_share else number_text
    columns = [values for _, values in plot.lines] + list(plot.band or ()) + list(plot.bounds or ())
    known = [v for values in columns for v in values if v is not None] + ([] if plot.target is None else [plot.target])
    axes = svg.rounded_axes(plot.iterations, known, from_zero=plot.band is None)
    parts = [svg.frame(axes, x_label="iteration", y_label=plot.y_label, x_share=False, y_share=plot.is_share)]
    legend = []
    if plot.band is not None:
        parts.append(svg.band(axes, plot.iterations, *plot.band))
        legend.append((svg.swatch(Markup('<rect class="band" x="1" y="2" width="32" height="12"/>')), "band"))
    if plot.bounds is not None and any(value is not None for value in plot.bounds[0]):
        parts += [svg.bound(axes, plot.iterations, values) for values in plot.bounds]
        legend.append((svg.swatch(svg.bound_stroke("M1,4L33,4"), svg.bound_stroke("M1,12L33,12")), plot.bounds_name))
    if plot.target is not None:
        y = axes.y(plot.target)
        parts.append(svg.target_line(svg.LEFT, y, svg.WIDTH - svg.RIGHT, y))
        legend.append((svg.swatch(svg.target_line(1, 8, 33, 8)), f"target {write(plot.target)}"))
    for i, (name, values) in enumerate(plot.lines):
        parts.append(svg.line(axes, plot.iterations, values, i))
        legend.append((svg.swatch(svg.stroke("M1,8L33,8", i), svg.marker(17, 8, i)), f"{name}: {_ends(values, write)}"))
    floor = svg.HEIGHT - svg.BOTTOM - 5
    parts += [svg.text(axes.x(x), floor, mark) for x, mark in zip(plot.iterations, plot.marks, strict=False) if mark]
    numbers = [f"{name}: {_key_numbers(values, write)}" for name, values in plot.lines]
    return _chart(plot.title, parts, numbers, legend=legend, note=plot.note)


def calibration_chart(title: str, points: Sequence[CalibrationPoint], *, note: str) -> Chart:
    """Draw observed over predicted reward, both in [0, 1]; a mark's area grows with its count.

    Parameters
    ----------
    title
        Of the chart.
    points
        Places outside [0, 1] are drawn at the edge.
    note
        How to read it.

    Returns
    -------
    Chart
        With the diagonal of a perfect scorer; the second series has squares, and each band is a bar.
    """
    axes = svg.Axes(x_low=0, x_high=1, y_low=0, y_high=1)
    labels = {"x_label": "predicted reward (%)", "y_label": "observed reward (%)"}
    parts = [svg.frame(axes, **labels, x_share=True, y_share=True)]
    parts.append(svg.target_line(axes.x(0), axes.y(0), axes.x(1), axes.y(1)))
    largest, numbers = max((point.count for point in points), default=0) or 1, []
    series = list(dict.fromkeys(point.series for point in points))
    for point in points:
        said = f"predicted {share_text(point.predicted)}, observed {share_text(point.observed)}"
        numbers.append(f"{visible(point.series)} {visible(point.label)}: {said}")
        x, style = axes.x(_clip(point.predicted)), series.index(point.series) % 2
        if point.lower is not None and point.upper is not None:
            parts.append(svg.error_bar(x, axes.y(_clip(point.lower)), axes.y(_clip(point.upper)), style))
        radius = 3 + 7 * math.sqrt(max(point.count, 0) / largest)
        words = f"{numbers[-1]}, {point.count} rows"
        parts.append(svg.point(x, axes.y(_clip(point.observed)), radius, style, words))
    legend = [(svg.swatch(svg.point(17, 8, 6, i % 2, "")), f"{name}, area by rows") for i, name in enumerate(series)]
    legend.append((svg.swatch(svg.target_line(1, 14, 33, 2)), "observed equals predicted"))
    return _chart(title, parts, numbers[:12], legend=legend, note=note)


def bar_chart(title: str, bars: Sequence[Bar], *, unit: str, total: float | None, note: str) -> Chart:
    """Draw labelled horizontal bars from 0, each with its value and its share of the total, if that is known."""
    largest = max((bar.value for bar in bars), default=0.0)
    names = [f"· {bar.name}" if bar.is_part else bar.name for bar in bars]
    # Room for the longest name on the left and for the numbers on the right, at the letters of a narrow screen.
    left = min(240, 16 + 8 * max(map(len, names), default=0))
    row, room, parts, numbers = 28, svg.WIDTH - left - 136, [], []
    drawn = Markup('<rect class="{}" x="{}" y="{}" width="{:.1f}" height="{}"/>')
    for i, (bar, name) in enumerate(zip(bars, names, strict=True)):
        width, middle = (room * bar.value / largest if largest else 0.0), row * i + row / 2
        share = f" ({share_text(bar.value / total)})" if total else ""
        words = f"{number_text(bar.value)} {unit}{share}"
        parts.append(svg.text(left - 8, middle + 5, name, anchor="end"))
        inset = 9 if bar.is_part else 5
        kind = "bar part" if bar.is_part else "bar"
        parts.append(drawn.format(kind, left, row * i + inset, width, row - 2 * inset))
        parts.append(svg.text(left + width + 7, middle + 5, words, anchor="start"))
        numbers.append(f"{bar.name}: {words}")
    height = row * len(bars)
    parts.append(Markup('<line class="axis" x1="{x}" x2="{x}" y1="0" y2="{}"/>').format(height, x=left))
    parts.append(svg.text(left, height + 18, f"time ({unit}), from 0", anchor="start"))
    return _chart(title, parts, numbers, note=note, height=height + 26)


def interval_strip(lower: float, upper: float) -> Markup:
    """Draw one interval inside [0, 1] as a small strip with its middle marked."""
    low, high = 2 + 116 * _clip(lower), 2 + 116 * _clip(upper)
    return Markup(
        '<svg class="strip" viewBox="0 0 120 14" width="120" height="14" aria-hidden="true">'
        '<line class="axis" x1="2" x2="118" y1="7" y2="7"/>'
        '<rect class="bar" x="{:.1f}" y="3" width="{:.1f}" height="8"/>'
        '<line class="middle" x1="{middle:.1f}" x2="{middle:.1f}" y1="0" y2="14"/></svg>'
    ).format(low - 1, high - low + 2, middle=(low + high) / 2)


def _chart(
    title: str,
    parts: list[Markup],
    numbers: list[str],
    *,
    note: str,
    legend: Sequence[tuple[Markup, str]] = (),
    height: int = svg.HEIGHT,
) -> Chart:
    words = f"{title}. {'; '.join(numbers) or 'no values'}."
    drawing = Markup('<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>')
    return Chart(
        title=title,
        drawing=drawing.format(svg.WIDTH, height, words, Markup("").join(parts)),
        legend=tuple(legend),
        note=note,
    )


def _ends(values: Values, write: Callable[[float | None], str]) -> str:
    known = [value for value in values if value is not None]
    return " → ".join(dict.fromkeys(write(value) for value in (known[0], known[-1]))) if known else "no values"


def _key_numbers(values: Values, write: Callable[[float | None], str]) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "no values"
    gaps = len(values) - len(known)
    return (
        f"first {write(known[0])}, last {write(known[-1])}, lowest {write(min(known))}, highest {write(max(known))}"
        + (f", iterations without a value: {gaps}" if gaps else "")
    )


def _clip(value: float) -> float:
    return min(max(value, 0.0), 1.0)
