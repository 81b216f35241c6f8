"""Thirty kills at random moments: of the command, a policy process, its Prefect server, and a tracking server.

After each the same command goes on, or never stopped; no process is left, and the run ends with a calm one's bytes.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
import uuid
from types import SimpleNamespace

import pytest
from killing import MARK, find_marked, kill_marked, learned, listen, marked, wait_for_none
from local_servers import ask, free_ports
from tiny import ROOT, cli, make_toy

from tasks.serving import mlflow_command
from tasks.tracking import Tracker

pytestmark = [pytest.mark.slow, pytest.mark.ops, pytest.mark.timeout(3000)]

KILLS = {"flow": 15, "rank": 6, "prefect": 3, "mlflow": 6}
"""How often each is killed: thirty in all."""
ITERATIONS = 30
PROCESSES = {"rank": 2}
WAIT_S = 900


@pytest.fixture(scope="module")
def toy_home(tmp_path_factory, tracking_store):
    """Make a word world that trains for many short iterations, with a migrated tracking store."""
    place, _ = make_toy(tmp_path_factory.mktemp("points") / "w", train={"iterations": ITERATIONS, "evaluate_every": 0})
    (place.root / "mlruns").mkdir()
    shutil.copy(tracking_store, place.root / "mlruns" / "mlflow.db")
    return place.root


def heard(process):
    """Return a command, and what gives all that it said."""
    return process, listen(process)


@pytest.fixture
def started(toy_home, tmp_path):
    """Give a copy of the workspace, and a function that starts the command there; what is left is ended."""
    root = shutil.copytree(toy_home, tmp_path / "w")
    word = uuid.uuid4().hex
    environ = {MARK: word, "PREFECT_HOME": str(root / ".prefect"), "COLUMNS": "200"}

    def start(processes=1, **more):
        words = ("train", "-w", root, "--run", "r", "-s", f"processes.count={processes}")
        return heard(cli(*words, environ={**environ, **more}))

    yield SimpleNamespace(root=root, word=word, start=start, run=root / "runs" / "r")
    kill_marked(word)


@pytest.fixture(scope="module")
def calm(toy_home, tmp_path_factory):
    """Give what a run that nobody disturbs ends with, by the number of processes."""
    made = {}

    def make(processes):
        if processes not in made:
            root = shutil.copytree(toy_home, tmp_path_factory.mktemp("calm") / "w")
            words = ("train", "-w", root, "--run", "r", "-s", f"processes.count={processes}")
            finish(*heard(cli(*words, environ={"PREFECT_HOME": str(root / ".prefect")})))
            made[processes] = learned(root / "runs" / "r")
        return made[processes]

    return make


def ended(process, said):
    """Wait until a command has ended; return what it said."""
    process.wait(WAIT_S)
    return said()


def finish(process, said):
    """Wait for a command to succeed; return what it said."""
    text = ended(process, said)
    assert 0 == process.returncode, text
    assert "Traceback" not in text
    return text


def begun(run):
    """Return the number of iterations that have begun."""
    return sum(1 for _ in run.glob("iterations/[0-9]*"))


def wait_for_progress(case, process, count):
    """Wait until so many iterations have begun; tell whether the command still works then."""
    deadline = time.monotonic() + WAIT_S
    while begun(case.run) < count and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.002)
    return process.poll() is None


def moments(victim):
    """Yield, for each kill, the iteration in whose course it comes and the seconds after its begin."""
    draw = random.Random(f"kill {victim}")
    step = (ITERATIONS - 2) // KILLS[victim]
    for number in range(KILLS[victim]):
        yield 1 + number * step + draw.randrange(step), draw.uniform(0, 0.6)


@pytest.mark.parametrize("victim", ["flow", "rank"])
def test_what_ends_the_command_costs_the_iteration_in_hand_alone(victim, started, calm):
    """Killed again and again, alone or through a policy process, the command leaves nothing and goes on."""
    processes = PROCESSES.get(victim, 1)
    for iteration, pause in moments(victim):
        process, said = started.start(processes)
        assert wait_for_progress(started, process, iteration), said()
        time.sleep(pause)
        if victim == "flow":
            os.kill(process.pid, signal.SIGKILL)
        else:
            os.kill(random.Random(iteration).choice(find_marked(started.word, "rangeline.policy.rank")), signal.SIGKILL)
        text = ended(process, said)
        assert process.returncode == (-signal.SIGKILL if victim == "flow" else 6), text
        assert victim == "flow" or "policy processes must live as long as the run" in text
        assert {} == wait_for_none(started.word, 10)
    finish(*started.start(processes))
    assert calm(processes) == learned(started.run)


def test_a_killed_prefect_server_is_started_again_and_the_command_never_stops(started, calm):
    """Each time its own server is killed the command says so, goes on, and leaves no server behind."""
    process, said = started.start()
    for iteration, pause in moments("prefect"):
        assert wait_for_progress(started, process, iteration), said()
        time.sleep(pause)
        os.kill(find_marked(started.word, "tasks.server")[0], signal.SIGKILL)
        time.sleep(0.5)
    text = finish(process, said)
    assert KILLS["prefect"] == text.count("the Prefect server was ended; it is started again")
    assert {} == wait_for_none(started.word, 10)
    assert calm(1) == learned(started.run)


def serve_mlflow(root, port, word):
    """Start a tracking server on the workspace's store, and wait until it answers."""
    server = subprocess.Popen(
        [sys.executable, "-m", "tasks.guard", *mlflow_command(root, port)],
        cwd=ROOT,
        env={**os.environ, MARK: f"{word}m"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        try:
            if ask(f"http://127.0.0.1:{port}/health")[0] == 200:
                return server
        except OSError:
            time.sleep(0.2)
    pytest.fail("the tracking server did not answer")


def test_a_killed_tracking_server_loses_and_repeats_nothing(started, calm):
    """With its tracking server killed and started again the command goes on; each metric stands once at its step."""
    (port,) = free_ports(1)
    server = serve_mlflow(started.root, port, started.word)
    try:
        process, said = started.start(MLFLOW_TRACKING_URI=f"http://127.0.0.1:{port}")
        for iteration, pause in moments("mlflow"):
            assert wait_for_progress(started, process, iteration), said()
            time.sleep(pause)
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()
            kill_marked(f"{started.word}m")
            server = serve_mlflow(started.root, port, started.word)
        finish(process, said)
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()
        kill_marked(f"{started.word}m")
    assert {} == marked(started.word)
    tracker = Tracker.open(started.root)
    run_id = tracker.find_run("rangeline.kind", "train")
    history = tracker.client.get_metric_history(run_id, "train/accuracy")
    assert [*range(1, ITERATIONS + 1)] == sorted(point.step for point in history)
    assert calm(1) == learned(started.run)
