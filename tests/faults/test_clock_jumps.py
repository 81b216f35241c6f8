"""The system's clock is set while a run is killed and goes on: it ends with the same bytes, and the audit holds."""

import os
import signal
import time
from pathlib import Path

import pytest
from killing import learned
from tiny import cli

from rangeline.provenance.ledger import read_ledger

LIBRARY = next(iter(sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))), None)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.ops,
    pytest.mark.skipif(LIBRARY is None, reason="needs Debian's package faketime"),
]
WORDS = ("--run", "r", "--set", "train.iterations=3", "-s", "train.keep_best=none")
DEADLINE_S = 240


def told(offset):
    """Return the environment of a process for which the clock is that far off; what measures durations is not."""
    return {"LD_PRELOAD": str(LIBRARY), "FAKETIME": offset, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}


def end_of(process):
    """Wait for a command to succeed; return what it said."""
    text, _ = process.communicate(timeout=DEADLINE_S)
    assert 0 == process.returncode, text
    return text


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
    deadline = time.monotonic() + DEADLINE_S
    while not (root / "runs/r/iterations/000002/policy_rollouts.parquet").exists():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.002)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    text = end_of(cli("train", "-w", root, *WORDS, environ=environ | told(offset)))
    assert "run r resumes after iteration 1 of 3" in text
    assert undisturbed == learned(root / "runs" / "r")
    lines = [entry.ended for entry in read_ledger(root).entries if entry.kind == "iteration"]
    assert 3 == len(lines)
    # The clock really was another one: the later lines are hours away from the first.
    assert (offset == "-1h") is (lines[1] < lines[0])
    end_of(cli("audit", "r", "-w", root, environ=environ))
    assert not read_ledger(root).problems
