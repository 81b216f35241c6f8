"""What happens when the coverage gate closes: stop before the update, or go on and remember it."""

import json
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterKey, FlowRunFilter

from flows.common import TrainRequest
from flows.train_policy import train
from rangeline.config import CoverageConfig, OverlapConfig, TrainConfig
from rangeline.errors import CoverageAlarmError, OverlapError
from rangeline.stages.workspace import open_workspace
from tasks.tracking import Tracker

pytestmark = pytest.mark.usefixtures("prefect_server")


def closed_request(root, on_alarm, **coverage):
    """Ask for a run whose gate closes in every iteration: no interval is that narrow."""
    _, config = open_workspace(root)
    gate = CoverageConfig(min_rows=8, min_prompts=4, max_mean_width=1e-6)
    settings = config.train.model_dump() | {"on_alarm": on_alarm}
    return TrainRequest(
        workspace=str(root),
        run="alarmed",
        train=TrainConfig(**settings),
        intervals=config.intervals,
        advantages=config.advantages,
        objective=config.objective,
        coverage=gate.model_copy(update=coverage),
    )


@pytest.fixture(scope="module")
def stopped(copied_workspace, tmp_path_factory):
    """Return a workspace with a run that stopped at its first alarm, and the error."""
    root = copied_workspace(tmp_path_factory.mktemp("alarm") / "work")
    with pytest.raises(CoverageAlarmError, match="mean width must be at most 1e-06") as caught:
        train(closed_request(root, "stop"))
    return root, str(caught.value)


def test_stop_names_iteration_reason_and_way_on(stopped):
    """The alarm says which iteration failed, why, where the page is, and how to go on."""
    root, message = stopped
    assert "iteration 1 failed" in message
    assert str(root / "runs/alarmed/iterations/000001/expectations/index.html") in message
    assert "train.on_alarm=continue" in message


def test_stop_comes_before_the_update_and_keeps_the_evidence(stopped):
    """No advantage, update or checkpoint is made; rollouts, intervals and the expectation result are kept."""
    root, _ = stopped
    folder = root / "runs/alarmed/iterations/000001"
    names = {path.name for path in folder.iterdir()}
    assert {"policy_rollouts.parquet", "policy_intervals.parquet", "audit_coverage.parquet", "coverage.json"} <= names
    assert not names & {"advantages.parquet", "update.json", "checkpoint.json", "manifest.json"}
    assert not (root / "runs/alarmed/checkpoints").exists()
    assert json.loads((folder / "expectations/result.json").read_text())["success"] is False


def test_stopped_run_is_tracked_as_failed(stopped):
    """The tracking run of a stopped training is FAILED and has no child for the iteration that was not done."""
    root, _ = stopped
    tracker = Tracker.open(root)
    runs = tracker.client.search_runs([tracker.experiment_id])
    assert [("alarmed", "FAILED")] == [(item.info.run_name, item.info.status) for item in runs]


def test_continue_goes_on_in_the_same_run_and_remembers(stopped, tmp_path):
    """The same run with `continue` does all iterations; that its gate closed is remembered in every later sitting."""
    root = shutil.copytree(stopped[0], tmp_path / "work", symlinks=True)
    first = train(closed_request(root, "continue"))
    assert ("alarmed", 2, False) == (first["run"], first["iteration"], first["covered"])
    assert (root / "runs/alarmed/checkpoints/000002/COMPLETE").is_file()
    again = train(closed_request(root, "continue"))
    assert first == again
    more = closed_request(root, "continue", max_mean_width=1.0)
    longer = more.model_copy(update={"train": more.train.model_copy(update={"iterations": 3})})
    assert train(longer)["covered"] is False


def paused_train(copied_workspace, folder, *answers):
    """Train one iteration that pauses, give a person's answers until one is taken; return workspace and outcome."""
    root = copied_workspace(folder / "work")
    request = closed_request(root, "pause")
    request = request.model_copy(update={"train": request.train.model_copy(update={"iterations": 1})})
    with ThreadPoolExecutor(1) as pool, get_client(sync_client=True) as client:
        running = pool.submit(train, request)
        paused = wait_for_pause(client, running)
        assert not (root / "runs/alarmed/checkpoints").exists()
        forms = [client.read_flow_run_input(paused, f"paused-{key(client, paused)}-{part}") for part in PARTS]
        results = [client.resume_flow_run(paused, run_input=answer).status.value for answer in answers]
        error = running.exception(timeout=180)
    return root, forms, results, error


PARTS = ("schema", "description")


def key(client, flow_run_id):
    """Return the key of the pause that a flow run is in."""
    return client.read_flow_run(flow_run_id).state.state_details.pause_key


def test_pause_asks_a_person_and_does_what_is_chosen(copied_workspace, tmp_path):
    """The form has the three choices, none chosen, and the reasons; a wrong answer is refused; the reason is kept."""
    root, forms, results, error = paused_train(
        copied_workspace,
        tmp_path,
        {},
        {"choice": "ignore"},
        {"choice": "recalibrate", "reason": "labels were old"},
    )
    assert error is None
    assert ["REJECT", "REJECT", "ACCEPT"] == results
    schema, description = (json.loads(form) if form.startswith("{") else form for form in forms)
    assert {"recalibrate", "continue", "stop"} == set(schema["properties"]["choice"]["enum"])
    assert ["choice"] == schema["required"]
    assert "Coverage alarm at iteration 1 of run alarmed" in description
    assert "mean width" in description
    folder = root / "runs/alarmed/iterations/000001"
    assert (folder / "recalibration.parquet").is_file()
    answer = json.loads((folder / "gate.json").read_text())["answer"]
    assert {"choice": "recalibrate", "reason": "labels were old"} == answer
    assert (root / "runs/alarmed/checkpoints/000001/COMPLETE").is_file()


def test_pause_ends_the_run_before_the_update_where_a_person_says_stop(copied_workspace, tmp_path):
    """`stop` is an alarm that tells the person's reason; no update is made."""
    root, _, _, error = paused_train(copied_workspace, tmp_path, {"choice": "stop", "reason": "judge is broken"})
    assert isinstance(error, CoverageAlarmError)
    assert "A person chose to stop: judge is broken." in str(error)
    assert not (root / "runs/alarmed/checkpoints").exists()


def wait_for_pause(client, running):
    """Return the id of the flow run that has paused."""
    only_paused = FlowRunFilter(state={"type": {"any_": ["PAUSED"]}})
    for _ in range(600):
        if running.done():
            running.result()
        found = client.read_flow_runs(flow_run_filter=only_paused)
        if found:
            return found[0].id
        time.sleep(0.2)
    pytest.fail("the flow run did not pause")


def test_recalibrate_goes_on_with_fresh_labels(copied_workspace, tmp_path):
    """A closed gate takes the audited rollouts as calibration set; the run goes on, and says that coverage fell."""
    root = copied_workspace(tmp_path / "work")
    result = train(closed_request(root, "recalibrate"))
    folder = root / "runs/alarmed/iterations/000002"
    assert ("alarmed", 2, False) == (result["run"], result["iteration"], result["covered"])
    assert (folder / "recalibration.parquet").is_file()
    named = {Path(ref["path"]).name for ref in json.loads((folder / "manifest.json").read_text())["outputs"]}
    assert {"recalibration.parquet", "monitor.json", "gate.json"} <= named


def overlap_request(root, consequence, iterations=2):
    """Ask for a run whose gate is wide open but for one overlap rule, which no calibration set can hold."""
    _, config = open_workspace(root)
    gate = CoverageConfig(min_rows=8, min_prompts=4, max_mean_width=1.0, max_unbounded_share=1.0, confidence=0.9999)
    settings = config.train.model_dump() | {"on_alarm": "continue", "iterations": iterations}
    return TrainRequest(
        workspace=str(root),
        run="apart",
        train=TrainConfig(**settings),
        intervals=config.intervals,
        advantages=config.advantages,
        objective=config.objective,
        coverage=gate,
        overlap=OverlapConfig(effective_rows={"limit": 1e9, "consequence": consequence}),
    )


def iteration_of(root, number):
    """Return the folder of an iteration of that run."""
    return root / f"runs/apart/iterations/{number:06d}"


def severities(root, number):
    """Return the severity of each broken expectation on overlap, by the result file."""
    result = json.loads((iteration_of(root, number) / "expectations/result.json").read_text())
    return {name: [s for s in result[name] if "effective rows" in s] for name in ("failed", "warned")}


def test_overlap_that_stops_does_so_before_the_update_and_can_go_on(copied_workspace, tmp_path):
    """`stop` names iteration, rule and value, makes no update, and the same run goes on once the rule says warn."""
    root = copied_workspace(tmp_path / "work")
    with pytest.raises(OverlapError, match=r"iteration 1 failed: the number of effective rows must be at least 1e\+09"):
        train(overlap_request(root, "stop", iterations=1))
    assert not (root / "runs/apart/checkpoints").exists()
    assert severities(root, 1)["failed"]
    assert (iteration_of(root, 1) / "overlap.json").is_file()
    assert 1 == train(overlap_request(root, "warn", iterations=1))["iteration"]
    assert not severities(root, 1)["failed"]
    assert severities(root, 1)["warned"]


def test_overlap_that_warns_marks_the_iteration_and_goes_on(copied_workspace, tmp_path, caplog):
    """`warn` is in the log, on the page, in the Prefect UI and among the warnings, and closes no gate."""
    root = copied_workspace(tmp_path / "work")
    with caplog.at_level("WARNING", logger="rangeline"):
        train(overlap_request(root, "warn", iterations=1))
    assert "iteration 1: overlap: the number of effective rows must be at least 1e+09, else warn" in caplog.text
    page = (iteration_of(root, 1) / "expectations/index.html").read_text()
    assert "Label more calibration prompts" in page
    assert severities(root, 1)["failed"] == []
    with get_client(sync_client=True) as client:
        keys = ArtifactFilter(key=ArtifactFilterKey(any_=["overlap-apart", "coverage-gate-apart"]))
        shown = [(artifact.key, str(artifact.data)) for artifact in client.read_artifacts(artifact_filter=keys)]
    # Runs of this name are trained by other tests on the same server.
    assert any(key == "overlap-apart" and "effective_rows" in text for key, text in shown)
    assert any(key == "coverage-gate-apart" and "Label more calibration prompts" in text for key, text in shown)


def test_overlap_that_widens_trains_on_nothing_it_cannot_believe(copied_workspace, tmp_path):
    """`widen` gives every rollout the whole support: the iteration has no advantage, and the gate stays open to it."""
    root = copied_workspace(tmp_path / "work")
    train(overlap_request(root, "widen", iterations=1))
    metrics = json.loads((iteration_of(root, 1) / "metrics.json").read_text())
    assert (1.0, 0.0) == (metrics["interval/unbounded_share"], metrics["advantage/active_share"])
    assert json.loads((iteration_of(root, 1) / "update.json").read_text()) == {"skipped": True}
    assert severities(root, 1)["warned"]


def test_overlap_that_recalibrates_takes_the_audited_rollouts(copied_workspace, tmp_path):
    """`recalibrate` takes fresh labels although `on_alarm` says continue; later iterations use no density ratio."""
    root = copied_workspace(tmp_path / "work")
    result = train(overlap_request(root, "recalibrate"))
    assert (2, False) == (result["iteration"], result["covered"])
    assert (iteration_of(root, 1) / "recalibration.parquet").is_file()
    assert not (iteration_of(root, 2) / "recalibration.parquet").exists()
    assert json.loads((iteration_of(root, 2) / "overlap.json").read_text())["weighted"] is False
    assert severities(root, 1)["failed"]
