"""A process that trains in forked children, and runs of a tiny workspace that begin from one snapshot."""

import json
import os
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest
from tiny import ROOT

from rangeline.lineage import digest_file

RUN = "r"


@pytest.fixture(scope="session")
def digests():
    """Give the function that hashes every file of a run."""
    return digests_of


def digests_of(run):
    """Return the digest of every file of a run that has no clock in it; the sittings are what differs by right."""
    files = [path for folder in ("checkpoints", "iterations") for path in run.glob(f"{folder}/**/*") if path.is_file()]
    return {path.relative_to(run).as_posix(): digest_file(path) for path in files if path.name != "timings.json"}


def configured(trained, **over):
    """Return the tiny workspace's settings with others laid over them."""
    from rangeline.config import PipelineConfig, merge

    return PipelineConfig.model_validate(merge(trained.config.model_dump(), over))


@pytest.fixture(scope="session")
def crash():
    """Give a function that trains in a child of one long-lived process and tells how the child ended."""
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "tests" / "crash_worker.py")],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def ask(root, config, **request):
        values = {"root": str(root), "config": config.model_dump(mode="json"), "run": RUN, **request}
        process.stdin.write(json.dumps(values) + "\n")
        process.stdin.flush()
        return json.loads(process.stdout.readline())

    yield ask
    process.stdin.close()
    process.wait(timeout=60)


@pytest.fixture(scope="session")
def begun(crash, request, tmp_path_factory):
    """Give a maker of runs: some iterations done and kept as a snapshot, and the whole undisturbed run beside it.

    Equal wishes share one workspace; each asker finds the undisturbed run in it.
    """
    made = {}

    def make(iterations=3, *, snapshot_at=2, **over):
        key = json.dumps([iterations, snapshot_at, over], sort_keys=True)
        if key not in made:
            # A reward that reads reasoning needs problems that ask for it.
            worked_out = over.get("reward", {}).get("source") in ("reference_probability", "verifree")
            trained = request.getfixturevalue("solved" if worked_out else "trained")
            made[key] = _begin(crash, trained, tmp_path_factory.mktemp("begun"), iterations, snapshot_at, over)
        made[key].restore("whole")
        return made[key]

    return make


def _begin(crash, trained, home, iterations, snapshot_at, over):
    request = {name: over.pop(name) for name in ("recalibrate",) if name in over}
    root, run = home / "w", home / "w" / "runs" / RUN
    shutil.copytree(trained.workspace.root, root, ignore=shutil.ignore_patterns("runs", ".rangeline"))

    def train(number=iterations, **more):
        # Verdicts are asked anew: what a killed sitting cached must not be what makes runs equal.
        shutil.rmtree(root / ".rangeline", ignore_errors=True)
        config = configured(trained, **{**over, "train": {**over.get("train", {}), "iterations": number}})
        return crash(root, config, **{**request, **more})

    def restore(name="snapshot"):
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(home / name, run)

    first = train(snapshot_at, stop_after=snapshot_at)
    assert first["ended"] == 0, first
    shutil.copytree(run, home / "snapshot")
    whole = train()
    assert whole["ended"] == 0, whole
    shutil.copytree(run, home / "whole")
    return SimpleNamespace(
        root=root,
        run=run,
        train=train,
        restore=restore,
        expected=digests_of(run),
        seen=whole["seen"],
        config=lambda **more: configured(trained, **more),
    )
