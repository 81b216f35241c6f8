"""The gold canary: every packaged reference, and one of every suite, through the real reward path."""

import pytest

from rangeline.prompts.benchmarks import benchmark_rows, read_registry
from rangeline.prompts.ingest import check_references, generate_problems
from rangeline.prompts.sources import read_records
from rangeline.records import PromptRow
from rangeline.suites.registry import get_suite, suite_names

REGISTRY = read_registry()
PACKAGED = {
    "gsm8k_packaged": 100,
    "aime_2025_packaged": 25,
    "mmlu_packaged": 281,
    "hellaswag_packaged": 100,
    "truthfulqa_packaged": 100,
    "aclsum_packaged": 100,
}
OWN = {
    "competition_math": [(r"\frac43", {}), (r"x\le2", {}), (r"so \boxed{1,2}", {})],
    "free_form": [("2.5", {"answer_type": "float", "tolerance": 0.04}), ("(c)", {"answer_type": "option"})],
    "grade_school_math": [("42", {}), ("6*7\n#### 42", {})],
    "multiple_choice": [("B", {"options": ["x", "y"]})],
    "open_ended": [("They greet.", {})],
    "reasoning_gym": [("42", {}), ("-1/3", {})],
}


@pytest.mark.parametrize("name", PACKAGED)
def test_every_packaged_reference_scores_right(name):
    """A rendered reference of a shipped benchmark is right, without exception."""
    rows = benchmark_rows(REGISTRY[name], read_records(REGISTRY[name])).rows
    suites = {row.suite: get_suite(row.suite) for row in rows}
    report = check_references(rows, suites, floor=1.0)
    assert (PACKAGED[name], 1.0) == (report.num_checked, report.passed_share)


@pytest.mark.parametrize("name", sorted(set(OWN) & set(suite_names())))
def test_every_suite_scores_its_own_references_right(name):
    """A rendered reference of each suite is right by its own verification."""
    suite = get_suite(name)
    for number, (reference, metadata) in enumerate(OWN[name]):
        row = PromptRow(prompt_id=f"p{number}", prompt="q", suite=name, reference=reference, metadata=metadata)
        assert 1.0 == suite.verify(suite.render_reference(row), row).reward


@pytest.mark.slow
def test_every_generator_scores_its_own_answers_right():
    """Any reasoning-gym generator that gives answers makes rows that score right against themselves."""
    from reasoning_gym.factory import DATASETS

    without_answers = {"boxnet", "graph_color", "propositional_logic", "rubiks_cube", "rush_hour"}
    names = sorted(set(DATASETS) - without_answers - {"composite"})
    rows = [row for name in names for row in generate_problems([{"name": name, "size": 1}], 0)]
    report = check_references(rows, {"reasoning_gym": get_suite("reasoning_gym")}, floor=1.0)
    assert (len(names), ()) == (report.num_checked, report.rejected)
