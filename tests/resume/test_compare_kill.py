"""A comparison that is killed goes on to the same bytes; a run that fails is named; nobody is left behind."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
WAIT_S = 120


def _start(root, plan, processes=1):
    return subprocess.Popen(
        [sys.executable, "-m", "rangeline.stages.comparison_conduct", str(root), str(plan), str(processes)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def _plan(root, **over):
    values = {
        "methods": ["range"],
        "seeds": [1],
        "settings": {"train": {"iterations": 6}, "evaluate": {"max_prompts": 6}},
        "evaluate_every": 2,
        "validation_share": 0.3,
        **over,
    }
    path = root / "kill.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


def _wait_for(check, process):
    deadline = time.monotonic() + WAIT_S
    while not (found := check()):
        assert process.poll() is None, process.stdout.read()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


def _rows(root):
    return [p for p in root.glob("comparisons/kill/*/*/runs/*/rows.json") if len(json.loads(p.read_text())) >= 3]


def _family(pid):
    """Return the living members of a process group."""
    members = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, group = path.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(group) == pid and state != "Z":
            members.append(int(path.parent.name))
    return members


def _workers(process):
    """Return the worker processes: those that were spawned, but for the resource tracker."""
    found = []
    for pid in _family(process.pid):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_text()
        except OSError:
            continue
        if "spawn_main" in words:
            found.append(pid)
    return found


def _results(root):
    paths = sorted(root.glob("comparisons/kill/*/*/runs/*/result.json"))
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in paths}


@pytest.mark.slow
def test_killed_comparison_goes_on_to_the_same_bytes(tiny_workspace, tmp_path):
    """Killed in mid-run it leaves no process behind; resumed, its result is that of an undisturbed one."""
    whole, broken = (tiny_workspace(tmp_path / name) for name in ("whole", "broken"))
    undisturbed = _start(whole, _plan(whole))
    assert 0 == undisturbed.wait(WAIT_S), undisturbed.stdout.read()

    killed = _start(broken, _plan(broken))
    _wait_for(lambda: _rows(broken), killed)
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    deadline = time.monotonic() + 10
    while _family(killed.pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert [] == _family(killed.pid)
    assert {} == _results(broken)
    resumed = _start(broken, _plan(broken))
    assert 0 == resumed.wait(WAIT_S), resumed.stdout.read()
    assert _results(whole) == _results(broken)
    assert 1 == len(_results(whole))


@pytest.mark.slow
def test_a_run_whose_process_is_killed_is_named_and_sinks_no_other(tiny_workspace, tmp_path):
    """One worker is killed: its run is named, all others are done; the same command does the one that is left."""
    root = tiny_workspace(tmp_path / "one")
    plan = _plan(root, methods=["range", "uarm"])
    process = _start(root, plan)
    _wait_for(lambda: _rows(root), process)
    os.kill(_workers(process)[0], signal.SIGKILL)
    output, _ = process.communicate(timeout=WAIT_S)
    assert 0 == process.returncode, output
    failures = json.loads((root / "comparisons" / "kill" / "runs.json").read_text())["failures"]
    assert ["default, range, seed 1"] == list(failures)
    assert "its process ended with status -9" in failures["default, range, seed 1"]
    assert 1 == len(_results(root))
    again = _start(root, plan)
    assert 0 == again.wait(WAIT_S), again.stdout.read()
    assert {} == json.loads((root / "comparisons" / "kill" / "runs.json").read_text())["failures"]
    assert 2 == len(_results(root))


@pytest.mark.slow
def test_a_method_that_cannot_learn_fails_alone(tiny_workspace, tmp_path):
    """A run that stops for want of signal is named with its reason, and its dependants are none."""
    root = tiny_workspace(tmp_path / "silent")
    faint = {
        "name": "range-faint",
        "settings": {
            "advantages": {"estimator": "range", "form": "gaussian", "reference_width": 1e-6},
            "train": {"max_silent_iterations": 1},
        },
    }
    oracle = "oracle"  # there is no world here, and so no oracle
    process = _start(root, _plan(root, methods=["range", faint, oracle], settings={"train": {"iterations": 1}}))
    assert 0 == process.wait(WAIT_S), process.stdout.read()
    failures = json.loads((root / "comparisons" / "kill" / "runs.json").read_text())["failures"]
    assert {"default, range-faint, seed 1", "default, oracle, seed 1"} == set(failures)
    assert "An advantage must differ from zero" in failures["default, range-faint, seed 1"]
    assert "'data.world' must be set" in failures["default, oracle, seed 1"]
    assert 1 == len(_results(root))
