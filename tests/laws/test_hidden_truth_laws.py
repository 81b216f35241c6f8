"""The truth of unlabelled prompts reaches nobody who learns: the oracle looks, and what it sees changes nothing."""

import json
from dataclasses import replace

import numpy as np
import pytest
from tiny import make_toy, train_toy

from rangeline.prompts.contract import rows_to_dicts
from rangeline.stages.data import read_pool, read_world
from rangeline.stages.judging import verify_rollouts
from rangeline.stages.tables import read_rollouts, read_table

LEARNT_FROM = ("policy_intervals.parquet", "advantages.parquet", "update.json", "ratio.json", "coverage.json")


@pytest.fixture(scope="module")
def run(toy):
    """Train one run of four iterations."""
    return train_toy(*toy, "hidden")


def test_unlabelled_pools_hold_no_truth(toy):
    """Rows of the policy and ratio pools name neither a reference nor anything beside the list."""
    for pool in ("policy", "ratio"):
        for cells in rows_to_dicts(read_pool(toy[0], pool)):
            assert (None, "{}") == (cells["reference"], cells["metadata"])


def test_verdicts_on_policy_rollouts_are_missing(toy, run):
    """Whoever asks the suite for the truth of a policy rollout gets none."""
    rows = {row.prompt_id: row for row in read_pool(toy[0], "policy")}
    verdicts = verify_rollouts(read_rollouts(run.iteration(1) / "policy_rollouts.parquet"), rows)
    assert np.isnan(verdicts.truth_N).all()
    assert {"unlabelled"} == set(verdicts.reason_N)


def test_tables_of_the_policy_share_hold_no_truth(run):
    """No table that an estimator reads has a column of rewards; the audit share alone has a truth."""
    names = {path.name: read_table(path).column_names for path in run.iteration(1).glob("*.parquet")}
    assert ["audit_coverage.parquet"] == [name for name, columns in names.items() if "truth" in columns]
    assert {"prompt_id", "advantage", "active", "midpoint"} == set(names["advantages.parquet"])


def test_another_truth_in_the_oracle_changes_no_advantage(toy, run):
    """With the hidden order turned around for the oracle alone, it reports otherwise, and every update is the same."""
    world = read_world(toy[0])
    turned = replace(world, ranking=world.ranking[::-1])
    other = train_toy(*toy, "turned", change=lambda session: session.__dict__.update(_world=turned))
    for number in range(1, 5):
        for name in LEARNT_FROM:
            mine, theirs = (folder.iteration(number) / name for folder in (run, other))
            assert mine.read_bytes() == theirs.read_bytes(), (number, name)
    seen = [json.loads((folder.iteration(4) / "oracle.json").read_text()) for folder in (run, other)]
    assert seen[0]["oracle/mean_reward"] != seen[1]["oracle/mean_reward"]


def test_training_goes_the_same_way_without_an_oracle(toy, run):
    """A run that never looks behind its intervals learns the same, bit for bit."""
    blind = train_toy(*toy, "blind", change=lambda session: session.__dict__.update(_world=None))
    assert not (blind.iteration(4) / "oracle.json").exists()
    weights = [folder.checkpoint(4) / "policy" / "model.safetensors" for folder in (run, blind)]
    assert weights[0].read_bytes() == weights[1].read_bytes()


def test_same_seed_makes_the_same_world_and_start(toy, tmp_path):
    """Another folder gives the same world, prompts, calibration and start; another seed shares the start alone."""
    again, _ = make_toy(tmp_path / "again")
    other, _ = make_toy(tmp_path / "other", seed=2)
    for name in ("data/generated/world.json", "data/pools/policy.parquet", "data/calibration/source_truth.parquet"):
        assert (toy[0].root / name).read_bytes() == (again.root / name).read_bytes()
        assert (toy[0].root / name).read_bytes() != (other.root / name).read_bytes()
    start = "models/warmup/policy/model.safetensors"
    assert 1 == len({(place.root / start).read_bytes() for place in (toy[0], again, other)})


def test_oracle_agrees_with_the_references_where_both_know(toy, run):
    """On audit rollouts, whose references are known, the oracle's reward is the suite's verdict."""
    from rangeline.stages.iteration import Iteration
    from rangeline.stages.oracle import true_rewards

    workspace, config = toy
    iteration = Iteration(workspace, config, run, 2)
    rollouts = read_rollouts(iteration.folder / "audit_rollouts.parquet")
    rows = {row.prompt_id: row for row in iteration.rows["audit"]}
    truth = true_rewards(read_world(workspace), iteration, "audit", rollouts)
    assert verify_rollouts(rollouts, rows).truth_N.tolist() == pytest.approx(truth.tolist(), nan_ok=True)
