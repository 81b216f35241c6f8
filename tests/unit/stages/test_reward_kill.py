"""A run that keeps a state is killed outright and goes on, and ends with the same bytes."""

import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
from tiny import ROOT

from rangeline.lineage import digest_file

DEADLINE_S = 180
SCRIPT = """
import json, sys
from pathlib import Path
from rangeline.config import PipelineConfig
from rangeline.stages.session import TrainingSession
from rangeline.stages.workspace import Workspace
root, config = Path(sys.argv[1]), PipelineConfig.model_validate(json.loads(sys.argv[2]))
with TrainingSession(Workspace(root), config, run="killed") as session:
    for number in session.remaining:
        session.sample(number)
        session.bound(number)
        session.update(number)
"""
OVER = {
    "trapo": {"labelled_prompts": 4, "prompts_per_iteration": 40},
    "reference_probability": {},
}


def _start(root, config):
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(root), config.model_dump_json()],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _finish(process):
    text, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, text


def _files(root):
    run = root / "runs" / "killed"
    files = [path for path in (*run.glob("checkpoints/*/**/*"), *run.glob("iterations/*/*")) if path.is_file()]
    return {path.relative_to(run).as_posix(): digest_file(path) for path in files if ".partial-" not in path.name}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "moment"),
    [
        ("trapo", "reward_state.json"),
        ("reference_probability", "policy_rollouts.parquet"),
        ("reference_probability", "update.json"),
    ],
)
def test_killed_run_ends_with_the_same_bytes(request, tmp_path, source, moment):
    """Killed in its second iteration and started again, it has every file of a run that nobody killed."""
    trained = request.getfixturevalue("solved" if source == "reference_probability" else "trained")
    train = {**trained.config.train.model_dump(), **OVER[source], "iterations": 3, "max_silent_iterations": 9}
    values = trained.config.model_dump() | {"train": train, "reward": {"source": source}}
    config = type(trained.config).model_validate(values)
    roots = [tmp_path / name / "w" for name in ("calm", "killed")]
    for root in roots:
        shutil.copytree(trained.workspace.root, root)
    _finish(_start(roots[0], config))
    process = _start(roots[1], config)
    deadline = time.monotonic() + DEADLINE_S
    while not (roots[1] / "runs" / "killed" / "iterations" / "000002" / moment).is_file():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.0005)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=DEADLINE_S)
    _finish(_start(roots[1], config))
    assert _files(roots[0]) == _files(roots[1])
