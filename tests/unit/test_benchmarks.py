"""The benchmarks run, at sizes that mean nothing, and say what they could not measure."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.coverage.world import Design, draw_rewards, draw_states, exact_coverage, make_world
from rangeline.seeds import stream

ROOT = Path(__file__).resolve().parents[2]


def run_benchmark(name, *options):
    """Run one benchmark as the make target does; give back what it showed."""
    command = [sys.executable, "-m", f"benchmarks.{name}.run", "--tiny", *options]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_interval_benchmark_reports_absent_peers_as_absent(tmp_path):
    """A peer without an environment has a reason in its row and no number; the textbook loop agrees with Rangeline."""
    shown = run_benchmark("intervals", "--peers", str(tmp_path / "no-python"), "--out", str(tmp_path))
    results = json.loads((tmp_path / "intervals.json").read_text())["results"]
    absent = {r["contender"] for r in results if r["note"].startswith("absent")}
    assert {"crepes-weighted", "MAPIE", "puncc, asked for each point", "puncc SplitCP(weight_func)"} == absent
    assert all(r["median_seconds"] is None for r in results if r["contender"] in absent)
    assert [1.0] == [r["equal_share"] for r in results if r["contender"] == "loop"]
    assert shown == (tmp_path / "intervals.md").read_text()


def test_interval_benchmark_reports_a_failing_peer_as_failed(tmp_path):
    """An environment in which a peer cannot be imported gives the last line of its error, not a number."""
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'ModuleNotFoundError: no such peer' >&2\nexit 1\n")
    python.chmod(0o755)
    run_benchmark("intervals", "--peers", str(python), "--out", str(tmp_path))
    results = json.loads((tmp_path / "intervals.json").read_text())["results"]
    notes = {r["note"] for r in results if r["contender"] == "MAPIE"}
    assert {"failed: ModuleNotFoundError: no such peer"} == notes


def test_coverage_benchmark_gives_every_cell_a_finite_coverage(tmp_path):
    """The study writes a verdict, a finite row for each design, size, alpha and method, and its plots."""
    run_benchmark("coverage", "--processes", "1", "--out", str(tmp_path))
    content = json.loads((tmp_path / "coverage.json").read_text())
    methods = {row[3] for row in content["rows"]}
    assert {"unweighted", "true ratio", "constant test mass", "logistic", "counts"} <= methods
    assert len(content["designs"]) * 2 * 3 * len(methods) == len(content["rows"])
    assert all(0 <= row[4] <= 1 and math.isfinite(row[5]) for row in content["rows"])
    assert content["acceptance"][0].startswith(("PASS", "FAIL"))
    for name in ("coverage.md", "coverage_by_shift.svg", "coverage_by_ess.png", "monitor_alarms.svg"):
        assert (tmp_path / name).stat().st_size > 0


@pytest.mark.parametrize("reward", ["continuous", "binary"])
@pytest.mark.parametrize("correlation", [0.0, 0.6])
def test_exact_coverage_is_the_share_of_draws_inside(reward, correlation):
    """The closed-form coverage of fixed intervals is what drawn target states and rewards give, to simulation error."""
    design = Design(name="d", family="shift", strength=0.8, num_states=8, correlation=correlation, reward=reward)
    world, rng = make_world(design), stream(0, "test", reward, str(correlation))
    lower_U, upper_U = np.linspace(0.0, 0.4, 8), np.linspace(1.0, 0.6, 8)
    state_N = draw_states(rng, world.target_U, 80_000, correlation)
    reward_N = draw_rewards(rng, world, state_N, correlation)
    share = ((reward_N >= lower_U[state_N]) & (reward_N <= upper_U[state_N])).mean()
    assert exact_coverage(world, lower_U, upper_U) == pytest.approx(share, abs=0.015)


def test_true_ratio_of_the_world_is_target_over_source():
    """The tilt has the stated strength, and both laws of states are probabilities."""
    world = make_world(Design(name="d", family="shift", strength=1.2, num_states=64, correlation=0.0))
    mean = (world.source_U * world.log_ratio_U).sum()
    strength = math.sqrt((world.source_U * (world.log_ratio_U - mean) ** 2).sum())
    assert strength == pytest.approx(1.2)
    assert [pytest.approx(1.0)] * 2 == [world.source_U.sum(), (world.source_U * np.exp(world.log_ratio_U)).sum()]
