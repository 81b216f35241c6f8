"""The pages of a reliability report: every number, and no text that could act."""

import numpy as np

from rangeline.evaluation.judge_page import CoordinateReport, JudgeReport, findings, html_page, markdown_page
from rangeline.evaluation.judge_reliability import coordinate_information


def report(**over):
    """Return a report of one coordinate with a hostile name."""
    information = coordinate_information(
        np.array([0, 1] * 20, dtype=np.int8),
        np.array([0.0, 1.0] * 20),
        num_levels=2,
        missing_N=np.zeros(40, dtype=bool),
        prompt_id_N=[f"p{i // 4}" for i in range(40)],
        length_N=np.arange(40.0),
    )
    one = CoordinateReport(
        name="<b>|right\u202e",
        kind="choice",
        information=information,
        flips={"order": (0.5, 4), "position": (None, 0), "repeat": (0.0, 4)},
        injections=(("harmless", 0.0, 3), ("orders the judge", 2 / 3, 3)),
        warnings=("2 of 4 verdicts turn with order.",),
    )
    given = {
        "judge": "m",
        "rubric": "r",
        "way": "written replies",
        "digest": "d" * 64,
        "num_rows": 40,
        "num_prompts": 10,
        "coordinates": (one,),
        "free_text": (
            {
                "name": "right",
                "asked": 16,
                "valid_json": 0,
                "readable": 10,
                "order_flips": (0.0, 10),
                "position_flips": (0.9, 10),
            },
        ),
        "gate": ("The gate would refuse free text.",),
    }
    return JudgeReport(**{**given, **over})


def test_both_pages_hold_the_numbers():
    """Verdict, flips with their counts, attacks and written replies stand in both pages."""
    for page in (markdown_page(report()), html_page(report())):
        for words in ("informative", "2 of 4", "66.7%", "0 of 16", "9 of 10", "would refuse free text"):
            assert words in page


def test_names_are_shown_and_do_nothing():
    """Marks and directions in a rubric's names are made visible, and tables keep their columns."""
    page = html_page(report())
    assert "<b>" not in page
    assert "\u202e" not in page
    lines = [line for line in markdown_page(report()).splitlines() if "right" in line and line.startswith("|")]
    assert {10} == {line.replace("\\|", "").count("|") - 1 for line in lines[:1]}


def test_without_a_complaint_the_gate_says_so():
    """A reader is told that the gate lets the judge pass."""
    assert "The gate lets this judge pass as it is asked." in findings(report(gate=()))
