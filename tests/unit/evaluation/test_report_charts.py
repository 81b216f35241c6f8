import re

import pytest

from rangeline.evaluation.report_charts import (
    Bar,
    CalibrationPoint,
    LinePlot,
    bar_chart,
    calibration_chart,
    interval_strip,
    line_chart,
)
from rangeline.evaluation.report_svg import rounded_axes


def plot(*lines, **changes):
    """Return a plot of some columns, with some fields changed."""
    fields = {
        "title": "t",
        "y_label": "share (%)",
        "iterations": range(len(lines[0])),
        "lines": [(f"line {i}", values) for i, values in enumerate(lines)],
        "note": "n",
    }
    return LinePlot(**(fields | changes))


def places(drawing):
    """Return all coordinates of a drawing."""
    return [float(number) for number in re.findall(r'(?:x|y|x1|x2|y1|y2|cx|cy)="(-?[\d.]+)"', drawing)]


def test_a_gap_breaks_the_line():
    """An iteration without a value parts the line and has no marker."""
    drawing = str(line_chart(plot([0.1, 0.2, None, 0.4, 0.5])).drawing)
    assert drawing.count('<path class="line s0"') == 2
    assert drawing.count('<circle class="mark s0"') == 4


def test_lines_differ_by_dash_and_marker():
    """Four lines have four dashes and four markers, so that no colour is needed."""
    drawing = str(line_chart(plot([0.1], [0.2], [0.3], [0.4])).drawing)
    assert len(set(re.findall(r'stroke-dasharray="([^"]+)"', drawing))) == 4
    assert [drawing.count(f'class="mark s{i}"') for i in range(4)] == [1, 1, 1, 1]


def test_axis_labels_and_key_numbers_are_in_the_drawing():
    """Axes name their unit, and the alternative text names first, last, lowest and highest."""
    drawing = str(line_chart(plot([0.5, None, 0.25])).drawing)
    assert ">iteration</text>" in drawing
    assert ">share (%)</text>" in drawing
    assert "first 50.0%, last 25.0%, lowest 25.0%, highest 50.0%, iterations without a value: 1" in drawing


def test_band_target_and_marks_are_drawn():
    """The band breaks with its gaps, the target is a line, marks stand above the axis."""
    chart = line_chart(
        plot([0.9, None, 0.8], band=([0.8, None, 0.7], [1.0, None, 0.9]), target=0.9, marks=["", "?", "✗"])
    )
    drawing = str(chart.drawing)
    assert drawing.count('class="band"') == 2
    assert drawing.count('class="target"') == 1
    assert ">?</text>" in drawing
    assert ">✗</text>" in drawing
    assert [words for _, words in chart.legend] == ["band", "target 90.0%", "line 0: 90.0% → 80.0%"]


@pytest.mark.parametrize("values", [[], [None, None], [0.0], [0.3, 0.3], [-2.0, 5.0], [1e-9, 2e-9], [1e9, 0.0]])
def test_any_column_of_numbers_is_drawn_inside_the_frame(values):
    """Empty, constant, tiny, huge and negative columns draw without leaving the frame."""
    drawing = str(line_chart(plot(values, is_share=False)).drawing)
    assert all(-1 <= place <= 461 for place in places(drawing))
    assert "nan" not in drawing
    assert "inf" not in drawing


def test_band_goes_along_its_top_and_back_along_its_bottom():
    """Neighbouring iterations share one outline of two points each."""
    drawing = str(line_chart(plot([0.9, 0.8], band=([0.8, 0.7], [1.0, 0.9]))).drawing)
    outline = re.search(r'<polygon class="band" points="([^"]+)"/>', drawing).group(1)
    tops_then_bottoms = [float(point.split(",")[1]) for point in outline.split()]
    assert len(tops_then_bottoms) == 4
    assert tops_then_bottoms[0] < tops_then_bottoms[1] < tops_then_bottoms[2]
    assert tops_then_bottoms[3] < tops_then_bottoms[2]


def test_axes_end_on_round_numbers_around_all_values():
    """Ends hold every value; from zero means that 0 is one of them."""
    axes = rounded_axes([0, 9], [0.31, 0.47], from_zero=True)
    assert (axes.y_low, axes.y_high) == (0.0, pytest.approx(0.5))
    zoomed = rounded_axes([0, 9], [0.72, 0.98], from_zero=False)
    assert (zoomed.y_low, zoomed.y_high) == (pytest.approx(0.7), pytest.approx(1.0))


def calibrated(predicted, observed, count, **changes):
    """Return a point of a calibration chart, with some fields changed."""
    fields = {"series": "calibration rows", "label": "a", "lower": None, "upper": None}
    return CalibrationPoint(predicted=predicted, observed=observed, count=count, **(fields | changes))


def test_second_series_of_a_calibration_chart_needs_no_colour():
    """Points of another pool are squares, and bands of both are bars, the second's dashed by its class."""
    points = [
        calibrated(0.5, 0.5, 1, lower=0.4, upper=0.6),
        calibrated(0.5, 0.7, 1, series="audit rows", lower=0, upper=1),
    ]
    chart = calibration_chart("t", points, note="n")
    drawing = str(chart.drawing)
    assert (1, 1) == (drawing.count('<circle class="point"'), drawing.count('<rect class="point other"'))
    assert (1, 1) == (drawing.count('class="error"'), drawing.count('class="error other"'))
    assert ["calibration rows", "audit rows"] == [words.split(",")[0] for _, words in chart.legend[:2]]


def test_bounds_are_drawn_where_they_are_known():
    """Two thin lines with a legend entry of their own; without any value there is neither."""
    known = line_chart(plot([0.9, 0.8], bounds=([0.1, 0.2], [0.9, 1.0]), bounds_name="bound of the run"))
    assert 2 == str(known.drawing).count('class="bound"')
    assert "bound of the run" in [words for _, words in known.legend]
    unknown = line_chart(plot([0.9, 0.8], bounds=([None, None], [None, None])))
    assert 'class="bound"' not in str(unknown.drawing)


def test_calibration_points_on_the_diagonal_stay_on_it():
    """Equal predicted and observed rewards lie on the line of a perfect scorer, and area follows count."""
    drawing = str(calibration_chart("t", [calibrated(0.0, 0.0, 1), calibrated(1.0, 1.0, 4)], note="n").drawing)
    line = re.search(r'<line class="target" x1="(\S+)" y1="(\S+)" x2="(\S+)" y2="(\S+)"/>', drawing).groups()
    points = re.findall(r'<circle class="point" cx="(\S+)" cy="(\S+)" r="(\S+)">', drawing)
    assert [line[:2], line[2:]] == [point[:2] for point in points]
    assert float(points[0][2]) < float(points[1][2])


def test_bars_carry_value_and_share():
    """A bar is readable without its length, and a part of the bar before is marked as one."""
    bars = [
        Bar(name="update", value=30.0),
        Bar(name="forward", value=20.0, is_part=True),
        Bar(name="judge", value=10.0),
    ]
    drawing = str(bar_chart("t", bars, unit="s", total=40.0, note="n").drawing)
    for words in ("30 s (75.0%)", "20 s (50.0%)", "10 s (25.0%)", ">· forward<"):
        assert words in drawing
    assert "%" not in str(bar_chart("t", bars, unit="s", total=None, note="n").drawing)


@pytest.mark.parametrize("bars", [[], [Bar(name="save", value=0.0)]])
def test_no_time_draws_no_length(bars):
    """Nothing measured, or nothing spent, divides by nothing."""
    drawn = bar_chart("t", [*bars, Bar(name="x", value=0.0)], unit="s", total=0.0, note="n")
    assert 'width="0.0"' in str(drawn.drawing)


def test_strip_marks_the_middle_of_the_interval():
    """The middle mark lies halfway between the ends."""
    assert 'x1="60.0" x2="60.0"' in str(interval_strip(0.25, 0.75))
