"""Locks that dead processes left are cleared; databases that living ones hold are waited for."""

import json
import os
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing

import pytest

from rangeline.errors import ToolError
from rangeline.judge.cache import VerdictCache
from tasks.dead_dvc_locks import release_dead
from tasks.tracking import Tracker
from tasks.versioning import ensure_repository, locked_outputs, reproduce

STAGE = """
stages:
  one:
    cmd: python -c "open('one.txt', 'w').write(open('word').read())"
    deps: [word]
    outs: [one.txt]
"""


@pytest.fixture
def repository(tmp_path):
    """Make a repository of one stage."""
    folder = tmp_path / "w"
    folder.mkdir()
    (folder / "dvc.yaml").write_text(STAGE)
    (folder / "word").write_text("x")
    ensure_repository(folder, tmp_path / "remote")
    return folder


def dead_pid():
    """Return the number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def entry(pid):
    """Return what dvc writes of a command that works on files."""
    return {"pid": pid, "cmd": "dvc repro"}


def made(folder):
    """Run the stage and tell whether it was made."""
    reproduce(folder, ["one"], on_line=lambda line: None)
    return {"one.txt"} == set(locked_outputs(folder)) and (folder / "one.txt").read_text() == "x"


@pytest.mark.parametrize("table", ["", '{"read": {"', "[1]", '{"read": {"a": [{"cmd": "no pid"}]}, "write": {}}'])
def test_a_table_that_a_kill_cut_short_blocks_nobody(table, repository):
    """Whatever a killed dvc left of its table of busy files, the next command makes the stage."""
    (repository / ".dvc" / "tmp" / "rwlock").write_text(table)
    assert made(repository)


@pytest.mark.parametrize("mode", ["read", "write"])
def test_a_lock_of_a_dead_process_is_cleared(mode, repository):
    """An entry of a process that is gone, or whose number another process has now, does not stop the stage."""
    path = repository / ".dvc" / "tmp" / "rwlock"
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    held = {str(repository / "one.txt"): entry(dead_pid()), str(repository): entry(other.pid)}
    if mode == "read":
        held = {name: [holder] for name, holder in held.items()}
    path.write_text(json.dumps({"read": {}, "write": {}, mode: held}))
    try:
        assert made(repository)
    finally:
        other.kill()
        other.wait()


@pytest.mark.parametrize("hours", [0, -1, 24])
def test_a_lock_of_a_living_process_is_respected(hours, repository):
    """An entry of a process that lives and wrote it stays, also when the clock was set, and the command is refused."""
    path = repository / ".dvc" / "tmp" / "rwlock"
    at_work = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", "repro", "one"])
    table = {"read": {}, "write": {str(repository / "one.txt"): {"pid": at_work.pid, "cmd": "dvc repro one"}}}
    path.write_text(json.dumps(table))
    # Of a clock that was set since, the file's own time tells nothing.
    os.utime(path, (time.time() - 3600 * hours, time.time() - 3600 * hours))
    try:
        release_dead(path.parent)
        assert table == json.loads(path.read_text())
        with pytest.raises(ToolError, match=str(at_work.pid)):
            reproduce(repository, ["one"], on_line=lambda line: None)
    finally:
        at_work.kill()
        at_work.wait()


def hold_database(path, seconds):
    """Write-lock a database from another connection for some time."""
    held = threading.Event()

    def work():
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("BEGIN EXCLUSIVE")
            held.set()
            time.sleep(seconds)
            connection.execute("ROLLBACK")

    thread = threading.Thread(target=work)
    thread.start()
    held.wait()
    return thread


def test_a_locked_store_of_verdicts_is_waited_for(tmp_path):
    """While another process writes, verdicts wait; afterwards they are there."""
    cache = VerdictCache(tmp_path / "verdicts.sqlite")
    cache.put_many({"a": (0.5, 1.0)})
    thread = hold_database(tmp_path / "verdicts.sqlite", 1.5)
    cache.put_many({"b": (1.0, 2.0)})
    thread.join()
    assert {"a", "b"} == set(cache.get_many(["a", "b"]))


def test_a_locked_tracking_store_is_waited_for(tiny_workspace, tmp_path):
    """While another process holds the tracking database, a metric waits; then it stands there once."""
    root = tiny_workspace(tmp_path / "w")
    tracker = Tracker.open(root)
    run_id = tracker.start_run("r", kind="train")
    thread = hold_database(root / "mlruns" / "mlflow.db", 1.5)
    began = time.monotonic()
    tracker.log_metrics(run_id, {"a": 1.0}, step=1)
    assert time.monotonic() - began > 1.0
    thread.join()
    assert [1.0] == [point.value for point in tracker.client.get_metric_history(run_id, "a")]
