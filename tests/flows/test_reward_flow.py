"""A run whose reward source asks no judge: it trains, is tracked and reported, and nobody says that it covered."""

import json

import pytest

from flows.common import TrainRequest
from flows.run_nightly import request_of
from flows.train_policy import train
from rangeline.config import PipelineConfig
from rangeline.evaluation.report_text import DASH
from rangeline.reward_config import RewardConfig
from rangeline.stages.reporting import write_report
from rangeline.stages.run import RunFolder
from rangeline.stages.workspace import Workspace, open_workspace
from tasks.records import POLICY_MODEL
from tasks.tracking import Tracker

pytestmark = pytest.mark.usefixtures("prefect_server")


@pytest.fixture(scope="module")
def voted(copied_workspace, tmp_path_factory):
    """Train two iterations by majority vote through the flow."""
    root = copied_workspace(tmp_path_factory.mktemp("voted") / "work")
    _, config = open_workspace(root)
    config = config.model_copy(update={"reward": RewardConfig(source="majority")})
    return root, train(request_of(str(root), config, "voted"))


def test_flow_says_that_coverage_was_not_measured(voted):
    """The flow's result names no coverage, and no gate was written."""
    root, result = voted
    assert ("voted", 2, "not measured") == (result["run"], result["iteration"], result["covered"])
    folder = root / "runs" / "voted" / "iterations" / "000002"
    assert not (folder / "gate.json").exists()
    assert not (folder / "expectations").exists()


def test_tracking_holds_no_coverage(voted):
    """Metrics that were not measured are absent, not 0; the reward's own numbers are there."""
    root, result = voted
    tracker = Tracker.open(root)
    found = tracker.find_version(POLICY_MODEL, result["version"])
    metrics = tracker.client.get_run(found["run_id"]).data.metrics
    assert not [name for name in metrics if name.startswith(("coverage/", "interval/mean", "ratio/", "judge/"))]
    assert {"train/accuracy", "reward/missing_share", "reward/kept_share"} <= set(metrics)
    assert {"checkpoint", "manifest", "pools"} == set(found["reference"])


def test_tracking_holds_every_step_and_the_completions(voted):
    """Numbers of optimiser steps are tracked by step over the run, and each iteration keeps its completions."""
    root, result = voted
    tracker = Tracker.open(root)
    run_id = tracker.find_version(POLICY_MODEL, result["version"])["run_id"]
    written = []
    for number in (1, 2):
        written += json.loads((root / "runs" / "voted" / "iterations" / f"{number:06}" / "steps.json").read_text())
    for name in ("loss", "grad_norm_clipped", "learning_rate"):
        found = tracker.client.get_metric_history(run_id, f"step/{name}")
        expected = [(row["step"], row[name]) for row in written]
        assert expected == sorted((item.step, item.value) for item in found)
    child = tracker.find_run("rangeline.iteration", f"{run_id}-1")
    assert {"completions.parquet", "completions.html"} <= {item.path for item in tracker.client.list_artifacts(child)}


def test_report_says_it_in_words(voted):
    """The page tells that coverage is unknown and why; transcripts show rewards without judgment states."""
    root, _ = voted
    page, table = write_report(Workspace(root), RunFolder(root / "runs" / "voted"), ())
    text = page.read_text()
    assert "It was not measured: the reward source makes no intervals that could cover the truth." in text
    assert "majority rewards" in text
    assert DASH == dict(table)["coverage"]
    statuses = {row["status"] for row in json.loads((page.parent / "report.json").read_text())["iterations"]}
    assert {"not_measured"} == statuses


def test_a_request_carries_every_setting_that_training_reads():
    """No section of the form is left at its default where the workspace's settings say otherwise."""
    over = {"overlap": {"ess_share": {"limit": 0.7}}, "reward": {"source": "majority"}, "coverage": {"min_rows": 3}}
    config = PipelineConfig.model_validate({**over, "train": {"iterations": 9}, "objective": {"clip_low": 0.1}})
    request = request_of("w", config, None)
    assert config == request.over(PipelineConfig())


def test_source_is_a_field_of_the_form():
    """The form of the flow offers every source by name."""
    schema = json.dumps(TrainRequest.model_json_schema())
    assert '"reference_probability"' in schema
    assert '"Scores the policy share"' in schema
