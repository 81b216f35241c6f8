"""Curves of a comparison as SVG: accuracy and coverage along the runs, mean over seeds with one standard error."""

import io
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from rangeline.evaluation.comparison_summary import Curve, DesignSummary

_STYLE = {
    "svg.hashsalt": "rangeline",  # element names are random without it
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
_COLOURS = (
    "#1f5fa8",
    "#b4490f",
    "#14715f",
    "#7a3d9a",
    "#8a6d00",
    "#a3255c",
    "#4b5563",
    "#0b7fab",
    "#6b8e23",
    "#444444",
)
_DASHES = ("-", "--", "-.", ":")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "*")
"""Ten, as colours are, so that a line is known without its colour."""


def curves(design: DesignSummary) -> str:
    """Return two charts side by side; equal summaries give equal text.

    The reference is drawn thick; a method's colour and dash go by its position in the table.
    """
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(9.6, 3.8), layout="constrained")
        accuracy, coverage = figure.subplots(1, 2)
        for i, item in enumerate(design.methods):
            style = {
                "color": _COLOURS[i % len(_COLOURS)],
                "linestyle": _DASHES[(i // len(_COLOURS) + i) % len(_DASHES)],
                "marker": _MARKERS[i % len(_MARKERS)],
                "markersize": 4,
                "markevery": (i % 3, 3),  # staggered: marks of near lines do not hide each other
                "linewidth": 2.4 if item.method == design.reference else 1.2,
            }
            _draw(accuracy, item.accuracy_curve, style, item.method)
            _draw(coverage, item.coverage_curve, style, None)
        coverage.axhline(design.target, color="#1b1f24", linewidth=1, linestyle=(0, (5, 4)))
        accuracy.set(title=f"{design.design}: accuracy on held-out prompts", xlabel="iteration", ylabel="%")
        whose = "policy rollouts" if design.is_oracle else "audit rollouts"
        coverage.set(title=f"coverage of {whose} since the look before", xlabel="iteration", ylabel="%")
        for axes in (accuracy, coverage):
            axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g}")
            axes.grid(color="#e6e9ed", linewidth=0.7)
        figure.legend(loc="outside lower center", ncols=5, frameon=False)
        target = io.StringIO()
        figure.savefig(target, format="svg", metadata={"Date": None, "Creator": None})
    return target.getvalue()


def _draw(axes: Any, curve: Curve, style: dict[str, Any], label: str | None) -> None:
    known = [(x, p) for x, p in zip(curve.iterations, curve.points, strict=True) if p.mean is not None]
    if not known:
        return
    x, mean = [item[0] for item in known], [item[1].mean or 0.0 for item in known]
    error = [item[1].standard_error or 0.0 for item in known]
    axes.plot(x, mean, label=label, **style)
    axes.fill_between(
        x, _shifted(mean, error, -1), _shifted(mean, error, 1), color=style["color"], alpha=0.12, linewidth=0
    )


def _shifted(mean: Sequence[float], error: Sequence[float], sign: int) -> list[float]:
    return [value + sign * spread for value, spread in zip(mean, error, strict=True)]
