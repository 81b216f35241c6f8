"""Every reward source trains: two iterations by its name alone, honest about what it did not measure."""

import json

import numpy as np
import pytest

from rangeline.audit import audit
from rangeline.config import PipelineConfig, merge
from rangeline.errors import ConfigError, NothingKeptError, PoolError
from rangeline.lineage import MANIFEST_NAME, read_manifest
from rangeline.rewards.registry import SOURCES
from rangeline.stages.iteration import Iteration
from rangeline.stages.rewarding import plan_rewards
from rangeline.stages.run import RunFolder
from rangeline.stages.scorers import SCORERS
from rangeline.stages.session import TrainingSession
from rangeline.stages.tables import read_advantages, read_intervals, read_rollouts, read_table


def _config(trained, source, **over):
    values = merge(trained.config.model_dump(), {"reward": {"source": source}})
    if source == "trapo":
        values = merge(values, {"train": {"labelled_prompts": 4}})
    return PipelineConfig.model_validate(merge(values, over))


def _train(trained, source, run, iterations=2, **over):
    config = _config(trained, source, **merge({"train": {"iterations": iterations}}, over))
    with TrainingSession(trained.workspace, config, run=run) as session:
        for number in session.remaining:
            session.sample(number)
            if session.plan.needs_judge:
                session.judge_states(number)
            session.bound(number)
            if session.plan.needs_judge:
                session.cover(number)
            session.update(number)
    return RunFolder(trained.workspace.runs / run), config


def test_every_source_is_known_and_can_be_asked():
    """Names of settings, facts and scorers are the same."""
    named = set(PipelineConfig().reward.model_fields["source"].annotation.__args__)
    assert named == set(SOURCES) == set(SCORERS)


@pytest.mark.parametrize("source", sorted(SOURCES))
def test_source_trains_two_iterations(copy, source):
    """Two iterations run, their chain verifies, and rewards are rows of the rollouts."""
    run, config = _train(copy, source, f"two-{source}", train={"max_silent_iterations": 5})
    folder = run.iteration(2)
    rollouts, intervals = (
        read_rollouts(folder / "policy_rollouts.parquet"),
        read_intervals(folder / "policy_intervals.parquet"),
    )
    assert rollouts.prompt_id_N == intervals.prompt_id_N == read_advantages(folder / "advantages.parquet").prompt_id_N
    assert () == audit(copy.workspace.root, run.checkpoint(2), original=lambda name: None).failures
    metrics = json.loads((folder / "metrics.json").read_text())
    assert metrics["train/accuracy"] is not None
    if not SOURCES[source].needs_judge:
        assert (None, None) == (metrics["coverage/empirical"], metrics["interval/mean_width"])
        made = {ref.path.rsplit("/", 1)[1] for ref in read_manifest(folder / MANIFEST_NAME).outputs}
        assert not made & {"coverage.json", "ratio.json", "policy_judgments.parquet", "gate.json"}
