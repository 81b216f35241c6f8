"""`rangeline serve` with a training at work, and any of its processes killed: marked, nothing left, and it goes on."""

import os
import random
import shutil
import signal
import time
import uuid

import pytest
from killing import MARK, find_marked, kill_marked, learned, wait_for_none
from local_servers import ask_patiently, free_ports, read_until
from tiny import cli, make_toy, train_toy

from flows.run_nightly import request_of
from rangeline.stages.workspace import Workspace

pytestmark = [pytest.mark.slow, pytest.mark.ops, pytest.mark.timeout(3000)]

VICTIMS = {
    "flow": "prefect.engine",
    "worker": "prefect worker start",
    "prefect": "tasks.server",
    "mlflow": "mlflow server",
    "serve": "flows.cli serve",
}
"""What is killed, by a part of its command line."""
ITERATIONS = 12
WAIT_S = 600
ENDED_S = 60


class Served:
    """The command in a workspace, with a word by which all that comes of it is known."""

    def __init__(self, root, ports):
        self.root, self.ports, self.word = root, ports, uuid.uuid4().hex
        self.api = f"http://127.0.0.1:{ports[0]}/api"
        environ = {"PREFECT_HOME": str(root / ".prefect"), "PREFECT_API_URL": "", MARK: self.word}
        words = ("serve", "-w", root, "--port", ports[0], "--mlflow-port", ports[1])
        self.process = cli(*words, environ=environ)
        self.said = read_until(self.process, "Ctrl-C ends")

    def submit(self, parameters):
        """Start the flow as the page does; return the id of the flow run."""
        body = {"deployments": {"name": {"any_": ["train"]}}}
        deployment = ask_patiently(f"{self.api}/deployments/filter", body=body)[0]["id"]
        made = ask_patiently(f"{self.api}/deployments/{deployment}/create_flow_run", body={"parameters": parameters})
        return made["id"]

    def state(self, flow_run):
        """Return the state of a flow run."""
        return ask_patiently(f"{self.api}/flow_runs/{flow_run}")["state"]["type"]

    def wait_for(self, flow_run, *states, seconds=WAIT_S):
        """Wait for one of some states; return the state and how long it took."""
        began = time.monotonic()
        while (state := self.state(flow_run)) not in states and time.monotonic() - began < seconds:
            time.sleep(0.5)
        return state, time.monotonic() - began

    def end(self):
        """End the command as a person does; return what it said and what it left."""
        self.process.send_signal(signal.SIGINT)
        text, _ = self.process.communicate(timeout=180)
        return text, wait_for_none(self.word, 10)


def wait_for_folder(root, number, process):
    """Wait until an iteration of the run has begun."""
    folder = root / "runs" / "r" / "iterations" / f"{number:06d}"
    deadline = time.monotonic() + WAIT_S
    while not folder.is_dir():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture(scope="module")
def seen(tmp_path_factory, tracking_store):
    """Kill one after the other while one run goes on; give what was seen of each, and what the run ended with."""
    home = tmp_path_factory.mktemp("faults")
    place, config = make_toy(home / "w", train={"iterations": ITERATIONS})
    (place.root / "mlruns").mkdir()
    shutil.copy(tracking_store, place.root / "mlruns" / "mlflow.db")
    calm = Workspace(shutil.copytree(place.root, home / "calm"))
    train_toy(calm, config, "r")
    parameters = {"request": request_of(str(place.root), config, "r").model_dump(mode="json")}
    told = {"calm": learned(calm.runs / "r")}
    draw = random.Random(11)
    served = Served(place.root, free_ports(2))
    try:
        for step, (victim, part) in enumerate(VICTIMS.items()):
            flow_run = served.submit(parameters)
            wait_for_folder(place.root, 2 + 2 * step, served.process)
            time.sleep(draw.uniform(0, 1))
            pids = find_marked(served.word, part)
            # The guard's own line holds the command's words too, and began before it; the flow's parent as well.
            os.kill(served.process.pid if victim == "serve" else pids[-1 if victim == "flow" else 1 % len(pids)], 9)
            told[victim] = {}
            if victim == "flow":
                told[victim]["state"], told[victim]["seconds"] = served.wait_for(flow_run, "CRASHED", "COMPLETED")
                told[victim]["left"] = find_marked(served.word, part)
                continue
            began = time.monotonic()
            text, _ = served.process.communicate(timeout=180)
            told[victim] |= {"left": wait_for_none(served.word, 30), "seconds": time.monotonic() - began}
            told[victim] |= {"said": text, "code": served.process.returncode}
            served = Served(place.root, free_ports(2))
            told[victim] |= {"state": served.state(flow_run), "next": served.said}
        flow_run = served.submit(parameters)
        told["last"] = served.wait_for(flow_run, "COMPLETED", "FAILED", "CRASHED")[0]
        told["ended"] = served.end()
        told["run"] = learned(place.runs / "r")
    finally:
        kill_marked(served.word)
    return told


def test_a_killed_flow_is_marked_in_seconds_while_the_servers_live(seen):
    """The worker marks a flow run whose process was killed; nothing of that process is left."""
    assert "CRASHED" == seen["flow"]["state"]
    assert seen["flow"]["seconds"] < ENDED_S
    assert [] == seen["flow"]["left"]


@pytest.mark.parametrize("victim", ["worker", "prefect", "mlflow"])
def test_a_killed_part_is_named_and_ends_all(victim, seen):
    """Where a part of the family is killed the command says which, ends the others and leaves no process."""
    told = seen[victim]
    assert (6, {}) == (told["code"], told["left"])
    assert f"'{victim}' must run; it ended with status" in told["said"]
    assert told["seconds"] < ENDED_S


def test_a_killed_command_leaves_nothing(seen):
    """Kill -9 of the command itself ends servers, worker and the training within seconds."""
    assert {} == seen["serve"]["left"]
    assert seen["serve"]["seconds"] < ENDED_S


@pytest.mark.parametrize("victim", ["worker", "prefect", "mlflow", "serve"])
def test_no_flow_run_says_running_for_ever(victim, seen):
    """After any of these the next command finds the flow run ended, or marks it and says so."""
    assert seen[victim]["state"] in ("CRASHED", "FAILED", "CANCELLED")
    if victim in ("prefect", "serve"):
        assert "was left by a killed server; it is marked Crashed" in seen[victim]["next"]


def test_the_run_ends_as_if_nobody_had_been_killed(seen):
    """After five kills the same run completes with the bytes of a calm one, and Ctrl-C leaves nothing."""
    assert "COMPLETED" == seen["last"]
    assert seen["calm"] == seen["run"]
    said, left = seen["ended"]
    assert "Ended: nothing of it runs on." in said
    assert {} == left
