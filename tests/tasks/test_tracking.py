"""Laws of tracking, on a real store: nothing invented, nothing secret, nothing twice."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rangeline.errors import BadInputError, ConfigError, ToolError
from rangeline.records import ArtifactRef
from tasks.redaction import REDACTED
from tasks.tracking import NONFINITE_METRIC, Tracker

ROOT = Path(__file__).parents[2]
REF = ArtifactRef(path="data/pools/policy.parquet", md5="a" * 32, sha256="b" * 64, size=10, rows=4)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    """Return a workspace whose path holds a space."""
    return tmp_path_factory.mktemp("work space")


@pytest.fixture(scope="module")
def tracker(workspace):
    """Return a tracker on a fresh store of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        yield Tracker.open(workspace)


@pytest.fixture
def run_id(tracker):
    """Return a fresh run."""
    return tracker.start_run("test", kind="train")


def run_of(tracker, run_id):
    """Return what the store holds of a run."""
    return tracker.client.get_run(run_id)


def artifact(tracker, run_id, name):
    """Return the text of an artifact."""
    return Path(tracker.client.download_artifacts(run_id, name)).read_text()


def test_default_store_lies_in_the_workspace(tracker, workspace, run_id):
    """The default store is a database and an artifact folder under `mlruns/`."""
    assert f"sqlite:///{workspace}/mlruns/mlflow.db" == tracker.uri
    assert (workspace / "mlruns" / "mlflow.db").is_file()
    tracker.log_json(run_id, {"a": 1}, "x.json")
    assert (workspace / "mlruns" / "artifacts" / run_id / "artifacts" / "x.json").is_file()


def test_opening_again_finds_the_same_experiment(tracker, workspace, monkeypatch):
    """A second opening makes no second experiment, and the environment variable wins over the argument."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", tracker.uri)
    assert tracker.experiment_id == Tracker.open(workspace, "sqlite:////nowhere/at/all.db").experiment_id


def test_unusable_store_is_a_tool_error_without_its_password(workspace, monkeypatch):
    """A store that cannot be opened is named, its password is not."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "nonsense://ann:hunter2@host/db")
    with pytest.raises(ToolError, match=r"must be a tracking store") as caught:
        Tracker.open(workspace)
    assert "hunter2" not in str(caught.value)


def test_opening_reports_nothing_home_and_importing_loads_nothing():
    """Importing the module loads no mlflow and changes no environment."""
    code = (
        "import os, sys; before = dict(os.environ); import tasks.tracking; "
        "raise SystemExit('mlflow' in sys.modules or before != dict(os.environ))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_telemetry_is_off_once_a_tracker_is_open(tracker):
    """An open tracker has telemetry switched off with the word that mlflow understands."""
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"


def test_runs_are_found_by_tag_newest_first_and_go_on(tracker):
    """A half-written run is found by its tag, and marked as running again."""
    first = tracker.start_run("i0", kind="iteration", tags={"rangeline.key": "t-0"})
    second = tracker.start_run("i0", kind="iteration", parent_run_id=first, tags={"rangeline.key": "t-0"})
    assert second == tracker.find_run("rangeline.key", "t-0")
    assert tracker.find_run("rangeline.key", "t-1") is None
    assert first == run_of(tracker, second).data.tags["mlflow.parentRunId"]
    assert run_of(tracker, second).data.tags["rangeline.kind"] == "iteration"
    tracker.end_run(second, "FAILED")
    assert run_of(tracker, second).info.status == "FAILED"
    tracker.resume_run(second)
    assert run_of(tracker, second).info.status == "RUNNING"


def test_quotes_in_a_tag_value_are_refused(tracker):
    """A value that would break out of the filter is refused."""
    with pytest.raises(BadInputError, match=r"must be free of quotes; got"):
        tracker.find_run("rangeline.key", "a' OR '1")


def test_unknown_status_is_refused(tracker, run_id):
    """A run ends with one of three words."""
    with pytest.raises(BadInputError, match=r"'status' must be one of .*; got 'DONE'"):
        tracker.end_run(run_id, "DONE")


def test_parameters_are_flat_short_and_free_of_secrets(tracker, run_id):
    """Nested settings get dotted names, long ones are cut, secrets appear in no form."""
    config = {
        "train": {"alpha": 0.1, "estimator": "range", "limits": [1, 2], "none": None, "empty": {}},
        "judge": {"api_key": "sk-1", "hf_token": "hf-1", "max_tokens": 16, "url": "http://ann:pw1@host/v1"},
        "servers": [{"password": "pw2"}],
        "text": "x" * 1000,
    }
    tracker.log_parameters(run_id, config)
    params = run_of(tracker, run_id).data.params
    expected = {
        "train.alpha": "0.1",
        "train.estimator": "range",
        "train.limits": "[1, 2]",
        "train.none": "null",
        "train.empty": "{}",
        "judge.api_key": REDACTED,
        "judge.hf_token": REDACTED,
        "judge.max_tokens": "16",
        "judge.url": f"http://ann:{REDACTED}@host/v1",
        "servers": f'[{{"password": "{REDACTED}"}}]',
    }
    assert expected == {key: value for key, value in params.items() if key != "text"}
    assert len(params["text"]) == 250
    stored = artifact(tracker, run_id, "config.json")
    assert not any(secret in stored for secret in ("sk-1", "hf-1", "pw1", "pw2"))
    assert json.loads(stored)["text"] == "x" * 1000


def test_more_parameters_than_one_batch_holds_are_all_logged(tracker, run_id):
    """A wide configuration is logged whole."""
    tracker.log_parameters(run_id, {f"p{i}": i for i in range(130)})
    assert len(run_of(tracker, run_id).data.params) == 130


def test_the_same_value_again_is_fine_and_another_is_refused(tracker, run_id):
    """A resumed run accepts its own settings, more settings, and no changed one."""
    tracker.log_parameters(run_id, {"a": {"b": 1}, "long": "y" * 300})
    tracker.log_parameters(run_id, {"a": {"b": 1}, "c": 2, "long": "y" * 300})
    with pytest.raises(ConfigError, match=r"'a.b' must stay '1' .*; got '2'"):
        tracker.log_parameters(run_id, {"a": {"b": 2}, "d": 3})
    with pytest.raises(ConfigError, match=r"'long' must stay"):
        tracker.log_parameters(run_id, {"long": "y" * 299 + "z"})
    assert {"a.b", "c", "long"} == set(run_of(tracker, run_id).data.params)


def test_only_finite_numbers_are_logged_and_the_others_counted(tracker, run_id):
    """None, NaN and infinity leave no number behind but the count of them."""
    values = {"ok": np.float64(0.5), "none": None, "nan": float("nan"), "inf": float("inf"), "minus": -np.inf}
    tracker.log_metrics(run_id, values, step=3)
    assert run_of(tracker, run_id).data.metrics == {"ok": 0.5, NONFINITE_METRIC: 4.0}
    assert [point.step for point in tracker.client.get_metric_history(run_id, "ok")] == [3]


def test_inputs_keep_path_digest_and_context(tracker, run_id):
    """A data set input is the path with its md5; logging it again after a resume adds none."""
    tracker.log_inputs(run_id, [REF, replace(REF, path="data/x.parquet", md5="c" * 32, rows=None)], "policy pool")
    tracker.log_inputs(run_id, [REF], "policy pool")
    inputs = run_of(tracker, run_id).inputs.dataset_inputs
    assert {(REF.path, REF.md5), ("data/x.parquet", "c" * 32)} == {(i.dataset.name, i.dataset.digest) for i in inputs}
    assert len(inputs) == 2
    first = next(i for i in inputs if i.dataset.name == REF.path)
    assert {"uri": REF.path} == json.loads(first.dataset.source)
    assert {"mlflow.data.context": "policy pool", "sha256": REF.sha256} == {t.key: t.value for t in first.tags}


def test_files_are_logged_under_their_folder(tracker, run_id, tmp_path):
    """A logged file keeps its name inside the artifact folder."""
    (tmp_path / "report.html").write_text("<p>")
    tracker.log_file(run_id, tmp_path / "report.html", "reports")
    assert artifact(tracker, run_id, "reports/report.html") == "<p>"


def test_versions_are_registered_by_reference_once(tracker, run_id, tmp_path):
    """A version holds its reference, hashes as tags and small files; the same reference gives the same version."""
    (tmp_path / "scorer.ubj").write_bytes(b"ubj")
    reference = {"checkpoint": "runs/a/ckpt-3", "sha256": {"model (1).safetensors": "d" * 64}}
    version = tracker.register("scorer", run_id=run_id, reference=reference, files=[tmp_path / "scorer.ubj"])
    assert version == tracker.register("scorer", run_id=run_id, reference=reference)
    other = tracker.register("scorer", run_id=run_id, reference={**reference, "checkpoint": "runs/a/ckpt-4"})
    assert (version, other) == (1, 2)
    found = tracker.find_version("scorer", 1)
    assert reference == found["reference"]
    assert found["tags"] == {"checkpoint": "runs/a/ckpt-3", "sha256.model _1_.safetensors": "d" * 64}
    assert run_id == found["run_id"]
    folder = found["source"].split("/artifacts/")[-1]
    assert {f"{folder}/reference.json", f"{folder}/scorer.ubj"} == {
        item.path for item in tracker.client.list_artifacts(run_id, folder)
    }


def test_only_open_gates_make_a_champion(tracker, run_id):
    """All gates true gives champion; a false, undefined or absent gate gives challenger and is named."""
    versions = [tracker.register("policy", run_id=run_id, reference={"checkpoint": str(i)}) for i in range(4)]
    assert tracker.promote("policy", versions[0], {"coverage": True, "accuracy": np.True_}) == "champion"
    assert tracker.promote("policy", versions[1], {"coverage": False, "accuracy": True}) == "challenger"
    assert tracker.promote("policy", versions[2], {"coverage": True, "accuracy": None}) == "challenger"
    assert tracker.promote("policy", versions[3], {"coverage": float("nan")}) == "challenger"
    assert tracker.find_version("policy", versions[1])["tags"]["rangeline.failed_gates"] == "coverage"
    assert tracker.find_version("policy", versions[2])["tags"]["rangeline.failed_gates"] == "accuracy"
    assert tracker.promote("policy", versions[2], {}) == "challenger"
    assert tracker.find_version("policy", versions[2])["tags"]["rangeline.failed_gates"] == "no gate was checked"
    champion = tracker.find_version("policy", "champion")
    assert (versions[0], ["champion"]) == (champion["version"], champion["aliases"])
    assert versions[2] == tracker.find_version("policy", "challenger")["version"]


@pytest.mark.parametrize("wanted", ["99", "champion", 7])
def test_unknown_versions_are_refused(tracker, wanted):
    """A version or alias that does not exist is named in the refusal."""
    with pytest.raises(BadInputError, match=rf"'nothing' must have a version or alias '{wanted}'"):
        tracker.find_version("nothing", wanted)
