"""The clock is set amid a run, before it goes on, and between nights: same bytes, nothing twice, the audit holds."""

import json
import os
import signal
import time
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from killing import learned
from tiny import cli

from rangeline.lineage import atomic_write
from rangeline.provenance.ledger import read_ledger

LIBRARY = next(iter(sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))), None)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.ops,
    pytest.mark.skipif(LIBRARY is None, reason="needs Debian's package faketime"),
]
WORDS = ("--run", "r", "--set", "train.iterations=3", "-s", "train.keep_best=none")
DEADLINE_S = 240


def wait_for(path, process):
    """Wait until a command has made a file."""
    deadline = time.monotonic() + DEADLINE_S
    while not path.exists():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.002)


def times_of(root, kind="iteration"):
    """Return the ledger's times of what was made, in the order of its lines."""
    return [datetime.fromisoformat(entry.ended) for entry in read_ledger(root).entries if entry.kind == kind]


def told(offset):
    """Return the environment of a process for which the clock is that far off; what measures durations is not."""
    return {"LD_PRELOAD": str(LIBRARY), "FAKETIME": offset, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}


def end_of(process):
    """Wait for a command to succeed; return what it said."""
    text, _ = process.communicate(timeout=DEADLINE_S)
    assert 0 == process.returncode, text
    return text


def is_set(passed, offset):
    """Tell whether the time between two lines is the jump, give or take what the work between them took."""
    jump = {"-1h": timedelta(hours=-1), "+1d": timedelta(days=1)}[offset]
    return jump <= passed < jump + timedelta(seconds=DEADLINE_S)


@pytest.fixture(scope="module")
def undisturbed(copied_workspace, prefect_server, tmp_path_factory):
    """Return what a run learned that nobody disturbed."""
    root = copied_workspace(tmp_path_factory.mktemp("undisturbed") / "w")
    end_of(cli("train", "-w", root, *WORDS, environ={"PREFECT_API_URL": prefect_server}))
    return learned(root / "runs" / "r")


@pytest.mark.parametrize("offset", ["-1h", "+1d"])
def test_a_run_goes_on_after_the_clock_was_set(offset, undisturbed, copied_workspace, prefect_server, tmp_path):
    """Killed in its second iteration and gone on with an hour earlier or a day later: same bytes, a whole lineage."""
    root = copied_workspace(tmp_path / "w")
    environ = {"PREFECT_API_URL": prefect_server}
    process = cli("train", "-w", root, *WORDS, environ=environ)
    wait_for(root / "runs/r/iterations/000002/policy_rollouts.parquet", process)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    text = end_of(cli("train", "-w", root, *WORDS, environ=environ | told(offset)))
    assert "run r resumes after iteration 1 of 3" in text
    assert undisturbed == learned(root / "runs" / "r")
    times = times_of(root)
    assert 3 == len(times)
    # The clock really was another one.
    assert is_set(times[1] - times[0], offset)
    end_of(cli("audit", "r", "-w", root, environ=environ))
    assert not read_ledger(root).problems


@pytest.mark.parametrize("offset", ["-1h", "+1d"])
def test_a_run_does_not_feel_that_the_clock_is_set(offset, undisturbed, copied_workspace, tmp_path):
    """Set between two iterations, for the command and its Prefect server: same bytes, nothing twice, true seconds."""
    root, clock = copied_workspace(tmp_path / "w"), tmp_path / "clock"
    clock.write_text("+0")
    began = time.monotonic()
    environ = told("+0") | {"FAKETIME_TIMESTAMP_FILE": str(clock), "FAKETIME_NO_CACHE": "1"}
    del environ["FAKETIME"]  # it would win over the file
    process = cli("train", "-w", root, *WORDS, environ=environ | {"PREFECT_HOME": str(root / ".prefect")})
    wait_for(root / "runs/r/iterations/000001/timings.json", process)
    atomic_write(clock, offset)
    end_of(process)
    took = time.monotonic() - began
    assert undisturbed == learned(root / "runs" / "r")
    times = times_of(root)
    assert 3 == len(times)
    assert any(is_set(later - earlier, offset) for earlier, later in pairwise(times))
    seconds = [json.loads(path.read_text()) for path in (root / "runs/r/iterations").glob("*/timings.json")]
    assert 3 == len(seconds)
    assert all(0 <= value < took for parts in seconds for value in parts.values())
    assert not read_ledger(root).problems


def nightly(root, server, **more):
    """Start a night."""
    return cli("nightly", "-w", root, environ={"PREFECT_API_URL": server} | more)


def records_of(root):
    """Return the records of the nights, in the order of the ledger's lines."""
    entries = [entry for entry in read_ledger(root).entries if entry.kind == "night"]
    return [json.loads((root / item["path"]).read_text()) for entry in entries for item in entry.files]


@pytest.mark.parametrize("offset", ["-1d", "+1d"])
def test_a_killed_night_goes_on_though_the_date_is_another(offset, copied_workspace, prefect_server, tmp_path):
    """The next night ends the killed one's run: no iteration twice; a third at the true time finds nothing new."""
    root = copied_workspace(tmp_path / "w")
    process = nightly(root, prefect_server)
    while not (found := list(root.glob("runs/nightly-*/iterations/000002/policy_rollouts.parquet"))):
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.002)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    run = found[0].parents[2].name
    end_of(nightly(root, prefect_server, **told(offset)))
    end_of(nightly(root, prefect_server))
    assert [run] == [path.parent.name for path in root.glob("runs/nightly-*/run.json")]
    assert 2 == len(times_of(root))
    second, third = records_of(root)
    assert run == second["run"] != second["night"]
    assert ("unchanged", f"nothing is new: run '{run}' has these data and settings") == (
        third["outcome"],
        third["reason"],
    )
    end_of(cli("audit", "all", "-w", root, environ={"PREFECT_API_URL": prefect_server}))
    assert not read_ledger(root).problems
