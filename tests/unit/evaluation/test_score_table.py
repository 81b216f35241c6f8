import pytest

from rangeline.evaluation.presets import get_preset
from rangeline.evaluation.score_table import Cell, benchmark_markdown, fill_preset, preset_markdown

RLPR = get_preset("rlpr")
VALUES = {
    "mmlu_pro": 0.4,
    "gpqa_diamond": 0.3,
    "theoremqa": 0.5,
    "webinstruct_verified": 0.6,
    "math_500": 0.7,
    "minerva": 0.2,
}
N = {plan.name: plan.samples for plan in RLPR.benchmarks}


def measured(name, value, **over):
    """Return metrics of one benchmark, as they are written to its folder."""
    n = over.pop("n", N[name])
    estimate = {"value": value, "lower": None, "upper": None, "num_prompts": 5}
    return {
        "estimates": {f"avg@{n}": estimate},
        "floor": {f"avg@{n}": None if value is None else value / 2},
        "unavailable": {},
        "samples": n,
        "temperature": 0.6,
        "top_p": 1.0,
        "max_tokens": 64,
        "seed": 0,
        "num_problems": 5,
        "num_available": 5,
        "truncated_share": 0.0,
        "absent_share": 0.0,
        "ambiguous_share": 0.0,
        "missing_share": 0.0,
        "missing_reasons": {},
        **over,
    }


def row(metrics, unavailable=None):
    """Return the cells of RLPR's table by title."""
    return {cell.title: cell for cell in fill_preset(RLPR, metrics, unavailable or {})}


def test_averages_are_plain_means_worked_by_hand():
    """General is the mean of four columns, All of seven; columns and averages stand in the table's order."""
    cells = row({name: measured(name, value) for name, value in {**VALUES, "aime_2024": 0.1}.items()})
    assert pytest.approx((0.4 + 0.3 + 0.5 + 0.6) / 4) == cells["General"].value
    assert pytest.approx((0.4 + 0.3 + 0.5 + 0.6 + 0.7 + 0.2 + 0.1) / 7) == cells["All"].value
    assert list(cells)[-3:] == ["AIME24", "General", "All"]


def test_an_average_over_a_hole_is_a_hole():
    """What could not be fetched has its reason, and only the averages that need it are absent, naming it."""
    metrics = {name: measured(name, value) for name, value in VALUES.items()}
    cells = row(metrics, {"aime_2024": "no data/benchmarks/aime_2024.jsonl"})
    assert (None, "no data/benchmarks/aime_2024.jsonl") == (cells["AIME24"].value, cells["AIME24"].reason)
    assert pytest.approx(0.45) == cells["General"].value
    assert (None, "no value of AIME24") == (cells["All"].value, cells["All"].reason)


def test_fewer_completions_do_not_stand_in():
    """avg@4 of AIME is not the avg@16 that the column asks for."""
    cells = row({"aime_2024": measured("aime_2024", 0.2, n=4)})
    assert (None, "asks for avg@16; got n=4") == (cells["AIME24"].value, cells["AIME24"].reason)


def test_a_benchmark_without_a_verdict_is_a_hole_and_not_zero():
    """Where every completion is missing there is no value."""
    cells = row({"minerva": measured("minerva", None, missing_share=1.0)})
    assert cells["Minerva"].value is None
    assert cells["Minerva"].reason == "no problem has what avg@2 needs"


def test_a_benchmark_that_was_not_run_says_so():
    """No metrics and no reason means that nobody asked."""
    assert row({})["MMLU-Pro"].reason == "not run"


def test_what_limits_a_value_is_told_beside_it():
    """A cap on problems, problems left out and missing verdicts are notes of the cell, and of averages over it."""
    limited = measured("minerva", 0.2, num_problems=7, num_available=272, missing_share=0.25)
    metrics = {name: measured(name, value) for name, value in {**VALUES, "aime_2024": 0.1}.items()} | {
        "minerva": limited
    }
    cells = row(metrics)
    assert cells["Minerva"].notes == (
        "minerva: the first 7 of 272 problems",
        "minerva: 5 of 7 problems have the verdicts for avg@2",
        "minerva: 25.0 % of completions have no verdict; counted as wrong, avg@2 is 0.100",
    )
    assert set(cells["Minerva"].notes) == set(cells["All"].notes)
    assert cells["General"].notes == ()


def test_markdown_shows_every_hole_and_its_reason():
    """A hole is a dash with a number, and below the table the number has the reason."""
    cells = (Cell(title="A", value=0.25), Cell(title="B", value=None, reason="not at hand"))
    text = preset_markdown("Table", {"model | x": cells})
    assert "| model \\| x | 0.250 | - (1) |" in text
    assert "1. B: not at hand" in text


def test_the_table_of_values_holds_settings_shares_and_reasons():
    """n, temperature, top-p, limit, seed, cut-off, unread and missing shares all stand there."""
    metrics = {
        "minerva": measured("minerva", 0.2, missing_share=0.5, truncated_share=0.25, missing_reasons={"cut off": 0.5})
    }
    text = benchmark_markdown(metrics, {"amc": "not at hand"})
    assert "| minerva | avg@2 | 0.200 | - | 0.100 | 5 |" in text
    assert "| minerva | 5 of 5 | 2 | 0.6 | 1.0 | 64 | 0 | 25.0 % | 0.0 % | 0.0 % | 50.0 % |" in text
    assert "- minerva: missing because of cut off: 50.0 % of completions" in text
    assert "| amc | - | - (not at hand) | - | - | 0 |" in text
