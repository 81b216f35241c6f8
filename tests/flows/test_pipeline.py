"""What the flows leave behind when they run in order on a real server, store and repository."""

import hashlib
import json
import math
import os
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterKey

from flows.audit_lineage import AuditRequest, audit
from flows.evaluate_policy import EvaluateRequest, evaluate
from flows.report_run import ReportRequest, report
from flows.run_nightly import request_of
from flows.train_policy import train
from rangeline.audit import audit as audit_manifest
from rangeline.errors import LineageError
from rangeline.lineage import MANIFEST_NAME, read_manifest
from rangeline.stages.report_files import REPORT_FILES
from rangeline.stages.workspace import Workspace, open_workspace
from tasks.data import say_data_status
from tasks.expectations import LABELLED_POOLS, UNLABELLED_POOLS
from tasks.lineage import audit_target
from tasks.records import POLICY_MODEL, SCORER_MODEL, promote_policy
from tasks.tracking import Tracker
from tasks.versioning import locked_outputs, locked_stages, reproduce, status

pytestmark = pytest.mark.usefixtures("prefect_server")


def no_original(name):
    """Say that no original bytes are at hand."""


def md5(path):
    """Return the md5 of a file."""
    return hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()


@pytest.fixture(scope="module")
def done(copied_workspace, tmp_path_factory):
    """Train, evaluate, report and audit once, on a workspace that the first three flows prepared."""
    root = copied_workspace(tmp_path_factory.mktemp("done") / "work")
    place, config = open_workspace(root)
    states = {"train": train(request_of(str(root), config, None), return_state=True)}
    trained = states["train"].result()
    run = trained["run"]
    asked = EvaluateRequest(workspace=str(root), policies=("warmup", run), evaluate=config.evaluate)
    states["evaluate"] = evaluate(asked, return_state=True)
    states["report"] = report(ReportRequest(workspace=str(root), run=run, evaluate=config.evaluate), return_state=True)
    states["audit"] = audit(AuditRequest(workspace=str(root), target=run), return_state=True)
    return SimpleNamespace(
        root=root, place=place, config=config, run=run, trained=trained, states=states, folder=place.run(run)
    )


@pytest.fixture(scope="module")
def tracker(done):
    """Open the tracking store of the finished workspace."""
    return Tracker.open(done.root)


@pytest.fixture(scope="module")
def parent(done, tracker):
    """Return the tracking run of the training run."""
    identity = json.loads((done.folder / "run.json").read_text())["identity"][:16]
    return tracker.client.get_run(tracker.find_run("rangeline.run", f"{done.run}-{identity}"))


@pytest.fixture(scope="module")
def children(tracker, parent):
    """Return the tracking runs of the iterations, in order."""
    text = f"tags.`mlflow.parentRunId` = '{parent.info.run_id}'"
    found = tracker.client.search_runs([tracker.experiment_id], text, order_by=["attributes.start_time ASC"])
    return list(found)


@pytest.fixture(scope="module")
def flow_runs(done, calibrated_workspace):
    """Return the flow runs of these workspaces by the name of their flow."""
    here = {str(done.root), str(calibrated_workspace)}
    found = {}
    with get_client(sync_client=True) as client:
        names = {flow.id: flow.name for flow in client.read_flows()}
        for item in client.read_flow_runs(limit=200):
            if (item.parameters.get("request") or {}).get("workspace") in here:
                found.setdefault(names[item.flow_id], []).append(item)
    return found


@pytest.fixture(scope="module")
def artifacts(flow_runs):
    """Give a function that returns the artifacts of a key that these flow runs left, newest first."""
    ours = {item.id for items in flow_runs.values() for item in items}

    def find(key):
        with get_client(sync_client=True) as client:
            found = client.read_artifacts(artifact_filter=ArtifactFilter(key=ArtifactFilterKey(any_=[key])))
        return sorted((a for a in found if a.flow_run_id in ours), key=lambda a: a.created, reverse=True)

    return find


def test_every_flow_completed(done, flow_runs):
    """Each of the seven flows ran to Completed, and nothing that ran in these workspaces failed."""
    assert {"prepare", "warmup", "calibrate", "train", "evaluate", "report", "audit"} == set(flow_runs)
    assert {"COMPLETED"} == {item.state.type.value for items in flow_runs.values() for item in items}
    assert all(state.is_completed() for state in done.states.values())


def test_the_server_shows_pools_calibration_coverage_and_lineage(done, artifacts):
    """Tables of pools, coverage and iterations, and the pages of calibration, gate and lineage, are on the server."""
    run = done.run.replace("_", "-")
    for key, kind in (
        ("pools", "table"),
        ("calibration", "markdown"),
        (f"coverage-{run}", "table"),
        (f"coverage-gate-{run}", "markdown"),
        (f"iterations-{run}", "table"),
        ("lineage", "markdown"),
    ):
        assert kind == artifacts(key)[0].type, key
    assert len(artifacts(f"coverage-{run}")) == 2
    assert "calibration" in artifacts("lineage")[0].data


@pytest.mark.parametrize("key", ["split", "warmup", "calibrate", "train"])
def test_finished_flows_show_full_progress(key, artifacts):
    """The progress of a finished flow is 100 percent."""
    found = artifacts(key)[0]
    assert (found.type, float(found.data)) == ("progress", 100.0)


def test_each_iteration_is_a_child_run(parent, children, done):
    """A training run is one finished parent with one finished child an iteration."""
    assert ["iteration 1", "iteration 2"] == [item.info.run_name for item in children]
    assert {"FINISHED"} == {item.info.status for item in (parent, *children)}
    assert parent.data.tags["rangeline.kind"] == "train"
    assert str(done.config.seed) == parent.data.params["seed"]


def test_only_finite_metrics_are_tracked(parent, children):
    """Every tracked number is finite and far from the largest float, and coverage is among them."""
    for item in (parent, *children):
        assert {"coverage/empirical", "interval/mean_width", "ratio/ess_share"} <= set(item.data.metrics)
        assert all(math.isfinite(value) and abs(value) < 1e300 for value in item.data.metrics.values())


def test_data_sets_carry_the_md5_of_their_files(parent, children, done):
    """The digest of a tracked data set is the md5 of the file that it names, for pools and iterations alike."""
    for item in (parent, *children):
        inputs = {entry.dataset.name: entry.dataset.digest for entry in item.inputs.dataset_inputs}
        assert inputs
        assert {name: md5(done.root / name) for name in inputs} == inputs
    pools = {entry.dataset.name for entry in parent.inputs.dataset_inputs}
    assert {f"data/pools/{name}.parquet" for name in LABELLED_POOLS | UNLABELLED_POOLS} <= pools


def test_policy_and_scorer_are_registered_as_challengers(tracker, done):
    """A run registers its policy and its scorer, both challengers: training alone crowns nothing."""
    policy = tracker.find_version(POLICY_MODEL, done.trained["version"])
    scorer = tracker.find_version(SCORER_MODEL, "challenger")
    assert "challenger" in policy["aliases"]
    assert f"runs/{done.run}/checkpoints/000002" == policy["reference"]["checkpoint"]["path"]
    recorded = scorer["reference"]["scorer"]["sha256"]
    assert hashlib.sha256((done.root / "data/calibration/scorer.ubj").read_bytes()).hexdigest() == recorded


def test_only_open_gates_make_a_champion(tracker, done):
    """A closed or undefined gate leaves the policy challenger; all gates open make it champion."""
    version = done.trained["version"]
    assert promote_policy.fn(str(done.root), version, {"coverage stood": False, "accuracy": True}) == "challenger"
    assert promote_policy.fn(str(done.root), version, {"coverage stood": True, "accuracy": None}) == "challenger"
    assert "champion" not in tracker.find_version(POLICY_MODEL, version)["aliases"]
    assert promote_policy.fn(str(done.root), version, {"coverage stood": True, "accuracy": True}) == "champion"
    _, failures, matching = audit_target.fn(str(done.root), "champion")
    assert () == failures
    assert matching > 20


def test_the_covered_flag_says_what_the_gates_said(done):
    """The flow says that coverage stood exactly where every iteration met its expectations."""
    results = [
        json.loads((done.folder / "iterations" / f"{n:06d}" / "expectations" / "result.json").read_text())
        for n in (1, 2)
    ]
    assert all(result["success"] for result in results) is done.trained["covered"]


def test_expectation_results_and_docs_are_kept_an_iteration(done):
    """Every iteration keeps its expectation result by table, a page for people and a page of Data Docs."""
    for number in (1, 2):
        folder = done.folder / "iterations" / f"{number:06d}" / "expectations"
        result = json.loads((folder / "result.json").read_text())
        weighted = json.loads((folder.parent / "overlap.json").read_text())["weighted"]
        assert {"all rows", "valid rows", "report", "run"} | ({"overlap"} if weighted else set()) == set(
            result["tables"]
        )
        assert result["success"] is (not result["failed"])
        assert "<html" in (folder / "data_docs" / "index.html").read_text().lower()
        assert "what to do" in (folder / "index.html").read_text()
    assert json.loads((done.root / ".rangeline/expectations/pools/result.json").read_text())["success"] is True


def test_data_are_as_locked_and_nothing_runs_twice(done):
    """After all flows dvc finds nothing changed of what was made, and reproducing that again runs no stage."""
    said = []
    made = locked_stages(done.root)
    assert {"anchors", "metric_head"} == set(status(done.root)), "only the stages that no reward source asked for"
    assert {"anchors", "metric_head"}.isdisjoint(made)
    assert say_data_status.fn(str(done.root))
    reproduce(done.root, made, on_line=said.append)
    assert not [line for line in said if line.startswith("Running stage")]
    assert any("didn't change" in line or "up to date" in line for line in said)


def test_the_remote_holds_the_pools(done):
    """Every byte of the pools lies in the remote under its md5."""
    remote = Path(os.environ["RANGELINE_DVC_REMOTE"]) / "files" / "md5"
    folder = locked_outputs(done.root)["data/pools"]
    listing = json.loads((remote / folder[:2] / folder[2:]).read_text())
    assert {path.name for path in done.place.pools.iterdir()} == {entry["relpath"] for entry in listing}
    for entry in listing:
        stored = remote / entry["md5"][:2] / entry["md5"][2:]
        assert md5(done.place.pools / entry["relpath"]) == entry["md5"] == md5(stored)


def test_every_manifest_verifies(done):
    """The chain below every manifest of the workspace matches byte for byte, the evaluations' too."""
    found = [path for path in done.root.rglob(MANIFEST_NAME) if ".dvc" not in path.parts]
    kinds = {read_manifest(path).kind for path in found}
    wanted = {"generated", "prompts", "pools", "warmup", "calibration", "iteration", "evaluation"}
    assert wanted == kinds
    for path in found:
        node = audit_manifest(done.root, path, original=no_original)
        assert () == node.failures, path


def test_the_report_is_one_page_that_needs_nothing_else(done):
    """The report refers to nothing outside itself: no script, style, image or link of another address."""
    page = (done.folder / "report.html").read_text()
    assert done.run in page
    assert [] == re.findall(r"""(?:src|href|action)\s*=\s*["']?(?!#|data:)[^"'\s>]+""", page)
    assert [] == re.findall(r"@import|url\((?!['\"]?(?:#|data:))", page)
    assert {"http://www.w3.org/2000/svg"} >= set(re.findall(r"https?://[^\s\"'<>)]+", page))


def test_the_report_is_linked_from_prefect_and_kept_by_mlflow(done, tracker, parent, artifacts):
    """The flow's page names the file, and the run's tracking record holds page, numbers, schema and tables."""
    key = f"report-{done.run}".replace("_", "-")
    assert (done.folder / "report.html").as_uri() in artifacts(key)[0].data
    kept = {Path(item.path).name for item in tracker.client.list_artifacts(parent.info.run_id, "report")}
    assert {"report.html", *REPORT_FILES} == kept


def test_unlabelled_prompts_have_no_truth_to_read(done):
    """Pools for updates and for the ratio hold no reference, and policy prompts are in no table that holds truth."""
    for pool in UNLABELLED_POOLS:
        references = pq.read_table(done.place.pools / f"{pool}.parquet")["reference"].to_pylist()
        assert {None} == set(references)
    trained_on = set()
    for number in (1, 2):
        folder = done.folder / "iterations" / f"{number:06d}"
        trained_on |= set(pq.read_table(folder / "policy_rollouts.parquet")["prompt_id_N"].to_pylist())
    assert trained_on
    tables = [path for path in done.root.rglob("*.parquet") if ".dvc" not in path.parts]
    for path in tables:
        table = pq.read_table(path)
        if {"truth", "reward"} & set(table.column_names):
            assert not trained_on & set(table["prompt_id"].to_pylist()), path


def test_rollouts_carry_the_version_that_wrote_them(done):
    """Iteration n is sampled by the policy after n - 1 updates."""
    versions = [
        pq.read_schema(done.folder / "iterations" / f"{n:06d}" / "policy_rollouts.parquet").metadata[b"policy_version"]
        for n in (1, 2)
    ]
    assert [b"0", b"1"] == versions


def test_a_changed_byte_fails_the_audit_and_is_located(done, tmp_path):
    """One changed byte of a pool fails the audit flow, which names file and offset, here and by the copy in dvc."""
    root = shutil.copytree(done.root, tmp_path / "changed", symlinks=True)
    path = Workspace(root).pools / "policy.parquet"
    content = bytearray(path.read_bytes())
    content[777] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(LineageError, match=r"data/pools/policy.parquet': first byte that does not match: 777 \(of"):
        audit(AuditRequest(workspace=str(root), target=done.run))


def test_training_a_complete_run_changes_nothing_and_says_so(done, tracker, children, caplog):
    """The same request again does no iteration, makes no version, touches no file of the run, and says why."""
    before = {path: path.stat().st_mtime_ns for path in done.folder.rglob("*") if path.is_file()}
    with caplog.at_level("INFO", logger="rangeline"):
        again = train(request_of(str(done.root), done.config, None))
    assert before == {path: path.stat().st_mtime_ns for path in done.folder.rglob("*") if path.is_file()}
    assert (done.run, 2, done.trained["version"]) == (again["run"], again["iteration"], again["version"])
    assert f"run {done.run} is complete: 2 iterations" in caplog.text
    text = f"tags.`mlflow.parentRunId` = '{children[0].data.tags['mlflow.parentRunId']}'"
    assert len(children) == len(tracker.client.search_runs([tracker.experiment_id], text))
