"""One process at a time works at a run, and one training in a workspace; the second is told who holds it."""

import os
import shutil
import signal
import subprocess
import sys

import pytest
from tiny import ROOT

from rangeline.errors import BusyError
from rangeline.holding import hold, holder_of
from rangeline.stages.session import TrainingSession
from rangeline.stages.workspace import Workspace
from tasks.lineage import train_alone
from tasks.nights import hold_night

HOLD = """
import sys, time
from pathlib import Path
from rangeline.holding import hold
with hold(Path(sys.argv[1]), "the thing", about={"run": "r"}):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def holder():
    """Give a function that lets another process hold a lock; what it started is ended with the test."""
    started = []

    def start(path):
        process = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout.readline() == "held\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_the_second_is_told_process_machine_and_what_the_first_said(holder, tmp_path):
    """The error names process, host, time and the holder's own words, and changes nothing."""
    path = tmp_path / "locks" / "a.lock"
    first = holder(path)
    with pytest.raises(BusyError, match=rf"the thing must be .*got process {first.pid} on .*, since 20.*, run r at"):
        hold(path, "the thing").__enter__()
    assert f"process {first.pid}" in holder_of(path)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_holder_lets_go(holder, tmp_path, number):
    """Whatever ended the holder, the next one gets the lock at once, and nobody is named any more."""
    path = tmp_path / "a.lock"
    first = holder(path)
    first.send_signal(number)
    first.wait()
    assert holder_of(path) is None
    with hold(path, "the thing"):
        assert str(os.getpid()) in path.read_text()
    assert path.read_text() == ""


def test_an_error_in_the_block_lets_go(tmp_path):
    """A block that fails holds nothing afterwards."""
    path = tmp_path / "a.lock"
    with pytest.raises(ZeroDivisionError, match="division"), hold(path, "the thing"):
        _ = 1 / 0
    with hold(path, "the thing"):
        pass


def test_two_sessions_on_one_run_are_refused_and_leave_it_as_it_is(trained, holder, tmp_path):
    """A session that finds its run at work is refused before it removes or loads anything."""
    root = shutil.copytree(trained.workspace.root, tmp_path / "w")
    place = Workspace(root)
    first = holder(place.locks / "run-r.lock")
    config = trained.config.model_copy(update={"train": trained.config.train.model_copy(update={"iterations": 3})})
    begun = place.runs / "r" / "iterations" / "000003" / "recalibration.parquet"
    begun.parent.mkdir()
    begun.write_text("of the other process")
    with pytest.raises(BusyError, match=rf"Run 'r' must be .*process {first.pid} "):
        TrainingSession(place, config, run="r").__enter__()
    assert begun.is_file()


def test_a_run_that_went_on_while_it_was_opened_is_refused(trained, tmp_path):
    """A checkpoint that came between opening and entering is another process's: nothing is made from the older one."""
    root = shutil.copytree(trained.workspace.root, tmp_path / "w")
    run = root / "runs" / "r"
    later = tmp_path / "later"
    (run / "checkpoints" / "000002").rename(later)
    session = TrainingSession(Workspace(root), trained.config, run="r")
    later.rename(run / "checkpoints" / "000002")
    with pytest.raises(BusyError, match="must stand still while it is opened; got checkpoint 000002"):
        session.__enter__()


def test_one_training_works_in_a_workspace(trained, holder, tmp_path):
    """A second training is refused with the holder's run; a night is not begun then, and says so."""
    root = shutil.copytree(trained.workspace.root, tmp_path / "w")
    first = holder(Workspace(root).training_lock)
    with pytest.raises(BusyError, match=rf"process {first.pid} on .*, run r"), train_alone(str(root), "other"):
        pytest.fail("two trained at once")
    with hold_night(str(root)) as busy:
        assert busy.startswith(f"a training is at work: process {first.pid} ")
    first.kill()
    first.wait()
    with hold_night(str(root)) as busy, train_alone(str(root), "r"):
        assert busy is None
