"""A training run that is killed outright goes on with the same command and ends with the same bytes."""

import functools
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from contextlib import suppress
from pathlib import Path

import pytest
from killing import MARK, kill_marked, wait_for_none
from tiny import cli, copy_code

from flows.run_nightly import request_of
from flows.train_policy import train as train_flow
from rangeline.lineage import atomic_write, digest_file
from rangeline.stages.run import RunFolder, last_complete
from rangeline.stages.session import TrainingSession
from rangeline.stages.workspace import open_workspace
from tasks.calibration import hold_gate
from tasks.tracking import Tracker

ITERATIONS = 3
DEADLINE_S = 180


@pytest.fixture
def mark(monkeypatch):
    """Put a word into the environment by which every process that comes of this test is known."""
    word = uuid.uuid4().hex
    monkeypatch.setenv(MARK, word)
    monkeypatch.setenv("COLUMNS", "200")
    yield word
    kill_marked(word)


@pytest.fixture(scope="module")
def train(prefect_server, tmp_path_factory):
    """Give a function that starts the training command on a workspace, always with the same code."""
    home = copy_code(tmp_path_factory.mktemp("code"))

    def start(root):
        words = (
            "train",
            "-w",
            root,
            "--run",
            "r",
            "--set",
            f"train.iterations={ITERATIONS}",
            "-s",
            "train.keep_best=none",
        )
        return cli(*words, environ={"PREFECT_API_URL": prefect_server}, home=home)

    return start


def finish(process):
    """Wait for a command to succeed, and return what it said."""
    text, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, text
    assert "Traceback" not in text
    return text


def kill_when(process, root, pattern):
    """Kill the command's process group as soon as a file of the run appears; return what it had said."""
    deadline = time.monotonic() + DEADLINE_S
    folder, name = (root / "runs" / "r" / pattern).parent, Path(pattern).name
    while not any(folder.glob(name)):
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.0005)
    os.killpg(process.pid, signal.SIGKILL)
    return process.communicate(timeout=DEADLINE_S)[0]


def result_of(root):
    """Return the digest of every file of a finished run that has no clock in it."""
    run = root / "runs" / "r"
    files = [path for path in (*run.glob("checkpoints/*/**/*"), *run.glob("iterations/*/*")) if path.is_file()]
    files.append(run / "run.json")
    ours = [path for path in files if path.name != "timings.json" and ".partial-" not in path.name]
    return {path.relative_to(run).as_posix(): digest_file(path) for path in ours}


def resumption(root):
    """Return what the next command must say about where it goes on."""
    done, _ = last_complete(RunFolder(root / "runs" / "r"))
    if done == ITERATIONS:
        return rf"run r is complete: {done} iterations"
    return rf"run r resumes after iteration {done} of {ITERATIONS}" if done else "run r starts at iteration 1 of 3"


@pytest.fixture(scope="module")
def undisturbed(copied_workspace, train, tmp_path_factory):
    """Start a run that nobody kills; give a function that waits for it and returns what it ended with."""
    root = copied_workspace(tmp_path_factory.mktemp("undisturbed") / "work")
    process = train(root)

    @functools.cache
    def wait():
        assert "run r starts at iteration 1 of 3" in finish(process)
        return result_of(root)

    yield wait
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(timeout=DEADLINE_S)


def test_the_undisturbed_run_ends_with_all_that_is_compared(undisturbed):
    """Weights, optimiser, metrics and manifests are among the compared files, of the checkpoints that are kept."""
    names = {"policy/model.safetensors", "optimizer.safetensors", "state.json", "COMPLETE"}
    assert {f"checkpoints/{n:06d}/{name}" for n in (2, 3) for name in names} <= set(undisturbed())
    documents = {"metrics.json", "manifest.json", "policy_rollouts.parquet", "advantages.parquet"}
    assert {f"iterations/{n:06d}/{name}" for n in (1, 2, 3) for name in documents} <= set(undisturbed())
    assert not any("checkpoints/000001" in name for name in undisturbed())


def test_a_run_killed_three_times_ends_with_the_same_bytes(undisturbed, copied_workspace, train, tmp_path, mark):
    """Killed while sampling, after bounding, and while a checkpoint is written, a run still ends with equal bytes."""
    root = copied_workspace(tmp_path / "work")
    expected = "run r starts at iteration 1 of 3"
    for pattern in (
        "iterations/000002/policy_rollouts.parquet",
        "iterations/000002/a*_coverage.parquet",
        "checkpoints/000003*",
    ):
        text = kill_when(train(root), root, pattern)
        assert re.search(expected, text), text
        assert {} == wait_for_none(mark)
        expected = resumption(root)
    assert re.search(expected, finish(train(root)))
    assert undisturbed() == result_of(root)
    assert {} == wait_for_none(mark)


@pytest.mark.usefixtures("prefect_server")
def test_an_iteration_that_was_done_but_not_tracked_is_tracked_later(copied_workspace, tmp_path):
    """Killed between its manifest and its record, an iteration still gets its tracking run, once."""
    root = copied_workspace(tmp_path / "work")
    place, config = open_workspace(root)
    with TrainingSession(place, config, run="r") as session:
        for step in (session.sample, session.judge_states, session.bound):
            step(1)
        hold_gate.fn(session, 1, *session.cover(1))
        session.update(1)
    for _ in range(2):
        train_flow(request_of(str(root), config, "r"))
    tracker = Tracker.open(root)
    names = [item.info.run_name for item in tracker.client.search_runs([tracker.experiment_id])]
    assert ["iteration 1", "iteration 2", "r"] == sorted(names)
    parent = tracker.client.get_run(tracker.find_run("rangeline.kind", "train"))
    history = tracker.client.get_metric_history(parent.info.run_id, "interval/mean_width")
    assert [1, 2] == [point.step for point in history]


def test_the_unfinished_file_of_a_killed_writer_is_swept(tmp_path):
    """Writing a file again removes what a writer that no longer lives had begun, and leaves alone a living one's."""
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    target, begun = tmp_path / "coverage.json", tmp_path / f".coverage.json.partial-{dead.pid}"
    living = tmp_path / f".coverage.json.partial-{os.getppid()}"
    for path in (begun, living):
        path.write_text("{")
    atomic_write(target, "{}")
    assert {target, living} == set(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize(
    "pattern",
    [
        "run.json",
        "iterations/000001/policy_rollouts.parquet",
        "iterations/000001/manifest.json",
        "iterations/000002/audit_judgments.parquet",
        "iterations/000002/ratio.json",
        "iterations/000002/policy_intervals.parquet",
        "iterations/000002/expectations/result.json",
        "iterations/000002/advantages.parquet",
        "iterations/000002/update.json",
        "checkpoints/000002*",
        "checkpoints/000002",
        "iterations/000002/checkpoint.json",
        "iterations/000002/manifest.json",
        "iterations/000002/timings.json",
        "iterations/000003/manifest.json",
    ],
)
def test_a_run_killed_at_any_moment_ends_with_the_same_bytes(
    pattern, undisturbed, copied_workspace, train, tmp_path, mark
):
    """Whatever file was the last to appear, the same command goes on from the last whole iteration to equal bytes."""
    root = copied_workspace(tmp_path / "work")
    kill_when(train(root), root, pattern)
    assert {} == wait_for_none(mark)
    expected = resumption(root)
    assert re.search(expected, finish(train(root)))
    assert undisturbed() == result_of(root)
    assert {} == wait_for_none(mark)


@pytest.mark.slow
def test_a_killed_flow_leaves_no_server_behind(copied_workspace, tmp_path, mark):
    """Killed alone, without its group, a command that started its own Prefect server takes that server with it."""
    root = copied_workspace(tmp_path / "work")
    process = cli("train", "-w", root, "--run", "r", "--set", f"train.iterations={ITERATIONS}")
    folder = root / "runs" / "r" / "iterations" / "000001"
    deadline = time.monotonic() + DEADLINE_S
    while not folder.is_dir() and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait(timeout=DEADLINE_S)
    assert {} == wait_for_none(mark, 10.0)
