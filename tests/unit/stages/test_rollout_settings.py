"""Laws of the settings that say what samples, and of rollouts drawn ahead."""

import json
from types import SimpleNamespace

import pytest

from rangeline.config import build_config
from rangeline.errors import ConfigError, WeightSyncError
from rangeline.policy.gpu_transfer import open_transfer
from rangeline.records import RolloutSet
from rangeline.stages.ahead import MARKER, take_ahead
from rangeline.stages.run import run_identity
from rangeline.stages.tables import read_rollouts, write_rollouts


def settings(config, **rollout):
    """Return settings with another rollout section, and the correction that drawing ahead asks for."""
    values = config.model_dump(mode="json")
    values["objective"]["mismatch"]["correction"] = "token"
    return build_config({**values, "rollout": rollout}, source="test")


def test_only_a_server_samples_ahead():
    """The model that is being updated cannot sample meanwhile, and two versions behind is never allowed."""
    with pytest.raises(ConfigError, match="staleness must be 0 with engine transformers"):
        build_config({"rollout": {"staleness": 1}}, source="test")
    with pytest.raises(ConfigError, match=r"'rollout.staleness' is not valid"):
        build_config({"rollout": {"engine": "vllm", "staleness": 2}}, source="test")


def test_what_is_drawn_ahead_is_corrected():
    """Rollouts of an older policy are trained on with truncated importance factors, or not at all."""
    with pytest.raises(ConfigError, match=r"correction must be token or sequence with rollout.staleness 1"):
        build_config({"rollout": {"engine": "vllm", "staleness": 1}}, source="test")


def test_what_is_drawn_ahead_is_one_version_old():
    """Several optimiser calls an iteration would make the rollouts too old to be taken: refused, never drawn twice."""
    rollout = {"engine": "vllm", "staleness": 1}
    settings = {"rollout": rollout, "objective": {"mismatch": {"correction": "token"}}}
    assert 1 == build_config(settings, source="test").rollout.staleness
    with pytest.raises(ConfigError, match=r"reward.optimiser_calls must be one with rollout.staleness 1"):
        build_config({**settings, "reward": {"optimiser_calls": "per_source"}}, source="test")


@pytest.mark.parametrize("over", [{"processes": {"count": 2}}, {"lora": {"rank": 4}}])
def test_a_server_is_given_whole_policies_of_one_process(over):
    """Shards and adapters are not synced to a server: the two are refused together, never mixed up."""
    with pytest.raises(ConfigError, match=r"rollout.engine must be transformers with processes.count above 1 or lora"):
        build_config({"rollout": {"engine": "vllm"}, **over}, source="test")


def test_where_a_server_is_does_not_make_another_run(toy):
    """Address, transfer and length do not change what a run computes; engine, type and staleness do."""
    workspace, config = toy
    same = [settings(config, engine="vllm", **over) for over in ({}, {"url": "http://x"}, {"max_model_len": 512})]
    assert 1 == len({run_identity(workspace, item) for item in same})
    other = [{"engine": "transformers"}, {"engine": "vllm"}, {"engine": "vllm", "dtype": "float16"}]
    other.append({"engine": "vllm", "staleness": 1})
    assert 4 == len({run_identity(workspace, settings(config, **item)) for item in other})


@pytest.mark.parametrize(("now", "taken"), [(4, True), (5, True), (6, False), (3, False)])
def test_rollouts_drawn_ahead_are_taken_at_most_one_version_later(tmp_path, now, taken):
    """Rollouts of version 4 serve the policy of version 4 or 5; what is older, or of the future, is drawn anew."""
    drawn = RolloutSet(
        prompt_id_N=("p",),
        sample_N=(0,),
        completion_N=("x",),
        prompt_token_ids_N=((1,),),
        token_ids_N=((2,),),
        sampled_logprobs_N=((-1.0,),),
        finish_reason_N=("stop",),
        policy_version=4,
    )
    iteration = SimpleNamespace(folder=tmp_path, shares=("policy",))
    assert not take_ahead(iteration, now)
    write_rollouts(tmp_path / "ahead_policy_rollouts.parquet", drawn)
    (tmp_path / MARKER).write_text(json.dumps({"policy_version": 4}))
    assert taken == take_ahead(iteration, now)
    if taken:
        assert 4 == read_rollouts(tmp_path / "policy_rollouts.parquet").policy_version


@pytest.mark.parametrize("backend", ["nccl", "ipc"])
def test_transfers_between_gpus_are_refused_without_them(backend):
    """Where there is no GPU, or no vLLM beside the trainer, the checkpoint route is named instead."""
    with pytest.raises(WeightSyncError, match=r"needs .*; got none. Set rollout.transfer=checkpoint"):
        open_transfer(None, None, backend)
