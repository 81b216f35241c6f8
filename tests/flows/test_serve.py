"""`rangeline serve`, for real: everything answers, strangers are refused, mistakes are one line, nothing is left."""

import json
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from local_servers import ask, free_ports, is_free, read_until
from tiny import ROOT, cli

from flows.common import TrainRequest
from rangeline.config import TRAINING_SECTIONS, build_config, read_settings

pytestmark = [pytest.mark.slow, pytest.mark.ops]

START_S = 600


def start(root, *words, until):
    """Start the command in a workspace, and read what it says until it serves."""
    environ = {"PREFECT_HOME": str(root / ".prefect"), "PREFECT_API_URL": ""}
    process = cli("serve", *words, "-w", root, environ=environ)
    return process, read_until(process, until)


def children(pid):
    """Return the ids of all processes below one."""
    listed = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    pairs = [tuple(map(int, line.split())) for line in listed.splitlines()]
    found, fresh = set(), {pid}
    while fresh:
        fresh = {child for child, parent in pairs if parent in fresh} - found
        found |= fresh
    return found


def still_running(pids, seconds=30):
    """Return which of some processes are still there after a while at most."""
    deadline = time.monotonic() + seconds
    left = set(pids)
    while left and time.monotonic() < deadline:
        left = {pid for pid in left if Path(f"/proc/{pid}").exists()}
        time.sleep(0.2)
    return left


@pytest.fixture(scope="module")
def served(tmp_path_factory, tracking_store):
    """Serve everything of a workspace; at the end Ctrl-C must end all of it."""
    root = tmp_path_factory.mktemp("served") / "w"
    (root / "mlruns").mkdir(parents=True)
    shutil.copy(tracking_store, root / "mlruns" / "mlflow.db")
    (root / "params.yaml").write_text("seed: 0\n")
    prefect, mlflow = free_ports(2)
    process, said = start(root, "--port", prefect, "--mlflow-port", mlflow, until="Ctrl-C ends")
    below = children(process.pid)
    yield root, prefect, mlflow, said
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=120)
    assert 0 == process.returncode
    assert "Ended: nothing of it runs on." in rest
    assert set() == still_running(below)
    assert is_free(prefect)
    assert is_free(mlflow)


def test_everything_answers_and_is_named(served):
    """Addresses are printed, both servers are well, every flow is deployed, automations and a worker are there."""
    _, prefect, mlflow, said = served
    assert f"Prefect answers at http://127.0.0.1:{prefect}" in said
    assert f"MLflow answers at http://127.0.0.1:{mlflow}" in said
    api = f"http://127.0.0.1:{prefect}/api"
    deployed = {item["name"] for item in json.loads(ask(f"{api}/deployments/filter", body={})[1])}
    assert {"train", "calibrate", "nightly", "audit"} <= deployed
    assert "rangeline: zombie flow runs" in ask(f"{api}/automations/filter", body={})[1]
    workers = json.loads(ask(f"{api}/work_pools/rangeline/workers/filter", body={})[1])
    assert ["ONLINE"] == [worker["status"] for worker in workers]


def test_the_training_form_begins_with_the_settings_of_the_project(served):
    """Every section of the form holds what params.yaml says, and its schema takes it."""
    _, prefect, _, _ = served
    api = f"http://127.0.0.1:{prefect}/api"
    listed = json.loads(ask(f"{api}/deployments/filter", body={})[1])
    train = next(item for item in listed if item["name"] == "train")
    request = TrainRequest.model_validate(train["parameters"]["request"])
    own = build_config(read_settings(ROOT / "params.yaml"), source="test")
    assert all(getattr(request, name) == getattr(own, name) for name in TRAINING_SECTIONS)
    # Of a run that nobody starts: its time comes when this server is long gone.
    later = {"type": "SCHEDULED", "state_details": {"scheduled_time": "2099-01-01T00:00:00Z"}}
    asked = {"parameters": train["parameters"], "state": later}
    status, told = ask(f"{api}/deployments/{train['id']}/create_flow_run", body=asked)
    assert status == 201, told


def test_foreign_hosts_and_origins_are_refused(served):
    """Both servers refuse another host name, and a page of another origin that would change something."""
    _, prefect, mlflow, _ = served
    flows, health = f"http://127.0.0.1:{prefect}/api/flows/filter", f"http://127.0.0.1:{prefect}/api/health"
    runs = f"http://127.0.0.1:{mlflow}/api/2.0/mlflow/experiments/search?max_results=1"
    create = f"http://127.0.0.1:{mlflow}/api/2.0/mlflow/experiments/create"
    assert (200, 400) == (ask(health)[0], ask(health, host="evil.example")[0])
    assert 200 == ask(flows, body={}, origin=f"http://localhost:{prefect}")[0]
    assert 403 == ask(flows, body={}, origin="https://evil.example")[0]
    assert (200, 403) == (ask(runs)[0], ask(runs, host="evil.example")[0])
    assert 403 == ask(create, body={"name": "x"}, origin="https://evil.example")[0]


def test_a_second_server_is_told_who_serves(served):
    """The same workspace is refused with the holder; another one on the same port hears what answers there."""
    root, prefect, _, _ = served
    again = cli("serve", "-w", root)
    said, _ = again.communicate(timeout=120)
    assert 2 == again.returncode
    assert f"already (Prefect http://127.0.0.1:{prefect}" in said
    (root.parent / "other").mkdir(exist_ok=True)
    other = cli("serve", "prefect", "-w", root.parent / "other", "--port", prefect)
    said, _ = other.communicate(timeout=120)
    assert 2 == other.returncode
    assert f"'--port' must be a free port; got {prefect}, where a Prefect server answers already" in said


def test_a_killed_command_leaves_nothing_and_its_lock_is_taken_over(tmp_path, tracking_store):
    """Kill -9 of the command ends its server within seconds; the next one says so and serves."""
    (tmp_path / "mlruns").mkdir()
    shutil.copy(tracking_store, tmp_path / "mlruns" / "mlflow.db")
    (port,) = free_ports(1)
    first, _ = start(tmp_path, "mlflow", "--port", port, until="Ctrl-C ends")
    below = children(first.pid)
    assert len(below) >= 2
    first.kill()
    first.wait()
    assert set() == still_running(below)
    second, said = start(tmp_path, "mlflow", "--port", port, until="Ctrl-C ends")
    assert f"Process {first.pid} served here and was killed; its lock is taken over." in said
    second.send_signal(signal.SIGTERM)
    rest, _ = second.communicate(timeout=60)
    assert 143 == second.returncode
    assert "Ended: nothing of it runs on." in rest
    assert is_free(port)
