"""Parts of which the report's charts are drawn: axes, lines with gaps, bands, markers and legend swatches.

Every text goes through `Markup.format`, which escapes it. Colours are classes of the page's style; series differ by
marker and dash as well, so that no colour is needed to tell them apart.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from markupsafe import Markup

Values = Sequence[float | None]
T = TypeVar("T")
Place = Callable[[float], float]
"""From a value to its place in a drawing."""

WIDTH, HEIGHT = 460, 262
LEFT, RIGHT, TOP, BOTTOM = 62, 14, 10, 44
_DASHES = ("none", "7 3", "2 3", "9 3 2 3")
_MARKERS = (
    Markup('<circle class="mark s0" cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>'),
    Markup('<rect class="mark s1" x="{a:.1f}" y="{b:.1f}" width="7" height="7"/>'),
    Markup('<path class="mark s2" d="M{x:.1f},{b:.1f}l4.5,7.5h-9z"/>'),
    Markup('<path class="mark s3" d="M{x:.1f},{b:.1f}l4,4l-4,4l-4,-4z"/>'),
)
_MAX_MARKED = 50
"""Above this number of points markers would touch; the dashes alone then tell lines apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Axes:
    """Map from values to places in the drawing."""

    x_low: float
    x_high: float
    y_low: float
    y_high: float
    """Above `y_low`."""

    def x(self, value: float) -> float:
        """Return the place of a value from the left; the middle where there is one value only."""
        span = self.x_high - self.x_low
        return LEFT + (WIDTH - LEFT - RIGHT) * ((value - self.x_low) / span if span else 0.5)

    def y(self, value: float) -> float:
        """Return the place of a value from the top."""
        share = (value - self.y_low) / (self.y_high - self.y_low)
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share


def rounded_axes(iterations: Sequence[float], known: Sequence[float], *, from_zero: bool) -> Axes:
    """Return axes that hold all known values, with ends on round numbers."""
    low, high = min(known, default=0.0), max(known, default=1.0)
    low = min(low, 0.0) if from_zero else low
    high = high if high > low else low + 1
    step = round_step(low, high)
    return Axes(
        x_low=min(iterations, default=0),
        x_high=max(iterations, default=1),
        y_low=math.floor(low / step + 1e-9) * step,
        y_high=math.ceil(high / step - 1e-9) * step,
    )


def frame(axes: Axes, *, x_label: str, y_label: str, x_share: bool, y_share: bool) -> Markup:
    """Draw grid, ticks and axis labels; shares are written in percent, other x values are whole numbers."""
    parts, right, bottom = [], WIDTH - RIGHT, HEIGHT - BOTTOM
    for value in ticks(axes.y_low, axes.y_high):
        line = Markup('<line class="grid" x1="{}" x2="{}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(line.format(LEFT, right, y=axes.y(value)))
        parts.append(text(LEFT - 6, axes.y(value) + 4.5, f"{(100 if y_share else 1) * value:.6g}", anchor="end"))
    for value in ticks(axes.x_low, axes.x_high, whole=not x_share):
        parts.append(text(axes.x(value), bottom + 17, f"{(100 if x_share else 1) * value:.6g}"))
    parts.append(Markup('<line class="axis" x1="{}" x2="{}" y1="{y}" y2="{y}"/>').format(LEFT, right, y=bottom))
    parts.append(text((LEFT + right) / 2, HEIGHT - 8, x_label))
    side = Markup('<text transform="translate(14 {}) rotate(-90)" text-anchor="middle">{}</text>')
    parts.append(side.format((TOP + bottom) / 2, y_label))
    return Markup("").join(parts)


def text(x: float, y: float, words: str, *, anchor: str = "middle") -> Markup:
    """Write words at a place."""
    return Markup('<text x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>').format(x, y, anchor, words)


def band(axes: Axes, iterations: Sequence[float], lower: Values, upper: Values) -> Markup:
    """Fill the band between two lines, with a gap where either is None; a lone value becomes a bar."""
    parts = []
    both = [None if low is None or high is None else (low, high) for low, high in zip(lower, upper, strict=True)]
    for run in _runs(iterations, both):
        if len(run) == 1:
            x, (low, high) = run[0]
            bar = Markup('<rect class="band" x="{:.1f}" y="{:.1f}" width="8" height="{:.1f}"/>')
            parts.append(bar.format(axes.x(x) - 4, axes.y(high), axes.y(low) - axes.y(high)))
            continue
        around = [(x, high) for x, (_, high) in run] + [(x, low) for x, (low, _) in reversed(run)]
        points = " ".join(f"{axes.x(x):.1f},{axes.y(y):.1f}" for x, y in around)
        parts.append(Markup('<polygon class="band" points="{}"/>').format(points))
    return Markup("").join(parts)


def line(axes: Axes, iterations: Sequence[float], values: Values, style: int) -> Markup:
    """Draw one line with gaps where a value is None, and its markers."""
    parts = []
    for run in _runs(iterations, values):
        path = "M" + "L".join(f"{axes.x(x):.1f},{axes.y(y):.1f}" for x, y in run)
        parts.append(stroke(path, style))
        if len(values) <= _MAX_MARKED or len(run) == 1:
            parts += [marker(axes.x(x), axes.y(y), style) for x, y in run]
    return Markup("").join(parts)


def bound(axes: Axes, iterations: Sequence[float], values: Values) -> Markup:
    """Draw one thin bound with gaps where a value is None."""
    paths = ["M" + "L".join(f"{axes.x(x):.1f},{axes.y(y):.1f}" for x, y in run) for run in _runs(iterations, values)]
    return Markup("").join(map(bound_stroke, paths))


def bound_stroke(path: str) -> Markup:
    """Draw a path as a bound."""
    return Markup('<path class="bound" d="{}"/>').format(path)


def point(x: float, y: float, radius: float, style: int, words: str) -> Markup:
    """Draw a circle, or for an odd style a square of the same area, with words for a pointer that rests on it."""
    title = Markup("<title>{}</title>").format(words) if words else Markup("")
    if style % 2 == 0:
        circle = Markup('<circle class="point" cx="{:.1f}" cy="{:.1f}" r="{:.1f}">{}</circle>')
        return circle.format(x, y, radius, title)
    half = radius * math.sqrt(math.pi) / 2
    square = Markup('<rect class="point other" x="{:.1f}" y="{:.1f}" width="{side:.1f}" height="{side:.1f}">{}</rect>')
    return square.format(x - half, y - half, title, side=2 * half)


def error_bar(x: float, y1: float, y2: float, style: int) -> Markup:
    """Draw a band as a bar with ends; that of an odd style is dashed."""
    path = f"M{x:.1f},{y1:.1f}V{y2:.1f}M{x - 4:.1f},{y1:.1f}h8M{x - 4:.1f},{y2:.1f}h8"
    return Markup('<path class="error{}" d="{}"/>').format(" other" if style % 2 else "", path)


def target_line(x1: float, y1: float, x2: float, y2: float) -> Markup:
    """Draw a line that values are held against."""
    return Markup('<line class="target" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>').format(x1, y1, x2, y2)


def stroke(path: str, style: int) -> Markup:
    """Draw a path in the dash of a style."""
    return Markup('<path class="line s{}" stroke-dasharray="{}" d="{}"/>').format(style, _DASHES[style], path)


def marker(x: float, y: float, style: int) -> Markup:
    """Draw the marker of a style."""
    return Markup(_MARKERS[style].format(x=x, y=y, a=x - 3.5, b=y - 4))


def swatch(*parts: Markup) -> Markup:
    """Wrap parts as a legend swatch of 34 by 16."""
    content = Markup("").join(parts)
    return Markup('<svg viewBox="0 0 34 16" width="34" height="16" aria-hidden="true">{}</svg>').format(content)


def _runs(iterations: Sequence[float], values: Sequence[T | None]) -> list[list[tuple[float, T]]]:
    runs: list[list[tuple[float, T]]] = [[]]
    for x, value in zip(iterations, values, strict=True):
        if value is not None:
            runs[-1].append((x, value))
        elif runs[-1]:
            runs.append([])
    return [run for run in runs if run]


def round_step(low: float, high: float) -> float:
    """Return a round step that parts a range, low below high, into at most five."""
    rough = 10.0 ** math.floor(math.log10((high - low) / 5))
    return next(rough * factor for factor in (1, 2, 5, 10) if (high - low) / (rough * factor) <= 5 + 1e-9)


def ticks(low: float, high: float, *, whole: bool = False) -> list[float]:
    """Return the round values of a range; only whole numbers where asked."""
    step = round_step(low, high) if high > low else 1.0
    step = max(1.0, step) if whole else step
    return [i * step for i in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]
