"""A whole comparison in miniature: two methods, two seeds, one iteration, through the flow."""

import json

import pyarrow.parquet as pq
import pytest
import yaml

PLAN = {
    "methods": ["range", "mid-dr_grpo"],
    "seeds": [1, 2],
    "settings": {"train": {"iterations": 1}, "evaluate": {"max_prompts": 8}},
    "validation_share": 0.3,
}


@pytest.fixture(scope="module")
def compared(tiny_workspace, prefect_server, tmp_path_factory):
    """Compare two methods over two seeds; give the workspace and what the flow said."""
    from flows.compare_runs import CompareRequest, compare

    root = tiny_workspace(tmp_path_factory.mktemp("compared") / "work space")
    plan = root / "small.yaml"
    plan.write_text(yaml.safe_dump(PLAN))
    return root, plan, compare(CompareRequest(workspace=str(root), plan=str(plan), processes=2))


def _results(root):
    return [json.loads(path.read_text()) for path in sorted(root.glob("comparisons/small/*/*/runs/*/result.json"))]


def test_every_method_and_seed_has_a_result(compared):
    """Two methods by two seeds are four runs; none failed, and every look is recorded."""
    root, _, said = compared
    assert {} == said["failures"]
    found = {(run["method"], run["seed"]) for run in _results(root)}
    assert {("range", 1), ("range", 2), ("mid-dr_grpo", 1), ("mid-dr_grpo", 2)} == found
    assert all([0, 1] == [row["iteration"] for row in run["rows"]] for run in _results(root))


def test_methods_of_a_seed_begin_alike(compared):
    """All methods of a seed draw the same rollouts at their first iteration; another seed draws others."""
    first = {}
    for run in _results(compared[0]):
        first.setdefault(run["seed"], set()).add((run["rows"][1]["rollouts_sha256"], run["rows"][0]["accuracy"]))
    assert [1, 1] == [len(facts) for facts in first.values()]
    assert first[1] != first[2]


def test_budgets_are_equal_and_count_auxiliary_rollouts(compared):
    """Every run draws as many policy, ratio and audit rollouts."""
    budgets = [run["rows"][1]["rollouts"] for run in _results(compared[0])]
    assert [{"policy": 32, "ratio": 24, "audit": 48}] * 4 == budgets


def test_results_are_written_and_recorded(compared):
    """Page, table, rows, curves and timings are there, and each run is one tracking record."""
    from tasks.tracking import Tracker

    root, _, said = compared
    folder = root / "comparisons" / "small" / "report"
    names = {"index.html", "table.md", "table.json", "curves-default.svg", "rows.parquet", "timings.json"}
    assert names == {path.name for path in folder.iterdir()}
    assert said["page"] == folder / "index.html"
    assert 8 == pq.read_table(folder / "rows.parquet").num_rows
    tracker = Tracker.open(root)
    recorded = tracker.client.search_runs([tracker.experiment_id], "tags.`rangeline.kind` = 'compare'")
    assert 4 == len(recorded)
    assert all("compare/accuracy" in run.data.metrics for run in recorded)


def test_a_repeat_runs_nothing_and_writes_the_same_bytes(compared):
    """Finished runs are reused, the tables are the same to the byte, and nothing is recorded twice."""
    from flows.compare_runs import CompareRequest, compare
    from tasks.tracking import Tracker

    root, plan, _ = compared
    folder = root / "comparisons" / "small"
    stable = [path for path in sorted((folder / "report").iterdir()) if path.name != "timings.json"]
    before = [path.read_bytes() for path in stable]
    made = {path: path.stat().st_mtime_ns for path in folder.glob("*/*/runs/*/result.json")}
    compare(CompareRequest(workspace=str(root), plan=str(plan), processes=1))
    assert before == [path.read_bytes() for path in stable]
    assert made == {path: path.stat().st_mtime_ns for path in folder.glob("*/*/runs/*/result.json")}
    tracker = Tracker.open(root)
    assert 4 == len(tracker.client.search_runs([tracker.experiment_id], "tags.`rangeline.kind` = 'compare'"))
