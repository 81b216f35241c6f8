"""The benchmark flow and its commands: MLflow values, artifacts, the printed table, rescoring, and refusals."""

import json
import math
import re

import pytest
from typer.testing import CliRunner

from flows.cli import app
from flows.evaluate_benchmarks import BenchmarkRequest, benchmark
from tasks.tracking import Tracker


@pytest.fixture(scope="module")
def place(tiny_workspace, tmp_path_factory):
    """Make a tiny workspace with a benchmark of its own."""
    root = tiny_workspace(tmp_path_factory.mktemp("benchmark") / "w")
    rows = [
        {"prompt_id": f"p{a}", "prompt": f"{a} + ? = {a + 7}", "suite": "reasoning_gym", "reference": "7"}
        for a in range(4)
    ]
    (root / "data" / "benchmarks").mkdir()
    (root / "data" / "benchmarks" / "math_500.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return root


@pytest.fixture(scope="module")
def outcome(place, tiny_model_folder, prefect_server):
    """Run the flow once on a paper's table."""
    return benchmark(
        BenchmarkRequest(
            workspace=str(place), policies=(str(tiny_model_folder),), preset="rlpr", max_tokens=4, max_problems=3
        )
    )


def test_values_shares_and_rows_are_tracked(place, outcome):
    """The tracking run holds what the metrics file holds, with rows and table as artifacts."""
    tracker = Tracker.open(place)
    (run,) = tracker.client.search_runs([tracker.experiment_id], "tags.`rangeline.kind` = 'evaluate'")
    (result,) = outcome["results"]
    metrics = result.results["math_500"].metrics
    assert metrics["missing_share"] == run.data.metrics["math_500/missing_share"]
    average = metrics["estimates"]["avg@2"]["value"]
    tracked = run.data.metrics.get("math_500/avg_at_2/value")
    assert average == tracked or (average is None and tracked is None)
    assert run.data.params["preset"] == "rlpr"
    names = {item.path for item in tracker.client.list_artifacts(run.info.run_id)}
    assert {"table.md", "table.json", "math_500"} <= names
    inside = {item.path for item in tracker.client.list_artifacts(run.info.run_id, "math_500")}
    assert {"math_500/samples.parquet", "math_500/metrics.json"} == inside
    assert all(math.isfinite(value) for value in run.data.metrics.values())


def test_the_same_request_is_tracked_once(place, tiny_model_folder, outcome):
    """Asking again reads the rows and adds no tracking run."""
    request = BenchmarkRequest(
        workspace=str(place), policies=(str(tiny_model_folder),), preset="rlpr", max_tokens=4, max_problems=3
    )
    assert outcome["table"] == benchmark(request)["table"]
    tracker = Tracker.open(place)
    assert len(tracker.client.search_runs([tracker.experiment_id], "tags.`rangeline.kind` = 'evaluate'")) == 1


def test_the_table_is_left_as_a_prefect_artifact(outcome, prefect_server):
    """The Markdown table can be read in the Prefect UI."""
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        pages = [item.data for item in client.read_artifacts() if item.type == "markdown"]
    assert outcome["table"].read_text() in pages


def run_command(*words):
    """Run the command line in this process; return its exit code and plain text."""
    result = CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "200", "TERM": "dumb"})
    return result.exit_code, re.sub(r"\x1b\[[0-9;]*m", "", result.output)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--benchmarks", "gsm8k", "--k", "0,1"), "'--k' must be whole numbers above 0"),
        (("--preset", "gpt"), "'preset' is not valid"),
        (("--benchmarks", "gsm8k", "--n", "0"), "'samples' is not valid"),
        (("--max-problems", "3"), "'max_problems' must go with --benchmarks or --preset"),
    ],
)
def test_a_wrong_option_ends_with_one_line(place, prefect_server, words, message):
    """A mistake is one line and exit code 2, before any model is loaded."""
    code, text = run_command("evaluate", "-w", place, *words)
    assert (code, True) == (2, f"error: {message}" in text)


def test_rescoring_says_that_nothing_changed(place, outcome):
    """With the checker that scored them, old completions keep their verdicts."""
    code, text = run_command("rescore", "-w", place, outcome["results"][0].results["math_500"].folder)
    assert code == 0
    assert "0 of 6 completions changed" in text
