"""An evaluation that is killed outright goes on with the same command and ends with the same bytes."""

import json
import os
import signal
import time

import pytest
from tiny import cli, copy_code

from rangeline.lineage import digest_file

NUM_PROBLEMS = 160
WORDS = ("evaluate", "--benchmarks", "sums", "--n", "4", "--max-tokens", "40")
DEADLINE_S = 120


@pytest.fixture(scope="module")
def evaluate(prefect_server, tiny_model_folder, tmp_path_factory):
    """Give a function that starts the command on a workspace, always with the same code."""
    home = copy_code(tmp_path_factory.mktemp("code"))

    def start(root):
        words = (*WORDS, "-w", root, "--policy", tiny_model_folder)
        return cli(*words, environ={"PREFECT_API_URL": prefect_server}, home=home)

    return start


def workspace(make, folder):
    """Make a workspace with a benchmark of many small problems."""
    root = make(folder)
    rows = [
        {"prompt_id": f"p{a}", "prompt": f"{a} + ? = {a + 7}", "suite": "reasoning_gym", "reference": "7"}
        for a in range(NUM_PROBLEMS)
    ]
    (root / "data" / "benchmarks").mkdir()
    (root / "data" / "benchmarks" / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return root


def results_of(root):
    """Return the digest of every file of the benchmark but its manifest, which names no time either."""
    folder = root / "runs" / "_benchmarks"
    return {str(p.relative_to(folder)): digest_file(p) for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.mark.slow
def test_a_killed_evaluation_goes_on_where_it_stood(evaluate, tiny_workspace, tmp_path):
    """After kill -9 the same command keeps finished shards as they are and ends as an undisturbed run does."""
    whole, broken = workspace(tiny_workspace, tmp_path / "whole"), workspace(tiny_workspace, tmp_path / "broken")
    process = evaluate(broken)
    deadline = time.monotonic() + DEADLINE_S
    while len(done := sorted(broken.glob("runs/_benchmarks/*/shards/*.parquet"))) < 3 and time.monotonic() < deadline:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    shards = sorted(broken.glob("runs/_benchmarks/*/shards/*.parquet"))
    assert 3 <= len(done) <= len(shards) < NUM_PROBLEMS / 8
    assert not list(broken.glob("runs/_benchmarks/*/samples.parquet"))
    kept = {path: path.stat().st_mtime_ns for path in shards}
    for root in (broken, whole):
        process = evaluate(root)
        said, _ = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 0, said
    assert kept == {path: path.stat().st_mtime_ns for path in shards}
    assert results_of(whole) == results_of(broken)
    assert f"{NUM_PROBLEMS * 4} of {NUM_PROBLEMS * 4}" in " ".join(said.split())
