"""Laws of adapters: the frozen start is the reference, merged weights are what is sampled and saved."""

import pytest
import torch
from safetensors.torch import load_file

from rangeline.errors import CheckpointError, ConfigError
from rangeline.policy.adapter import LoraSettings
from rangeline.policy.gathering import whole_weights
from rangeline.policy.trainer import UpdateSettings
from rangeline.policy.worker import Placement, PolicyWorker
from rangeline.records import Advantages, SamplingPlan
from rangeline.rollout.engine import EncodedPrompt
from rangeline.rollout.pretrained import load_pretrained

LORA = LoraSettings(rank=2, alpha=4.0)
PROMPTS = (EncodedPrompt(prompt_id="p", token_ids=(3, 4)), EncodedPrompt(prompt_id="q", token_ids=(5,)))


def adapted(folder, tmp_path, lora=LORA, **settings):
    """Load a worker with adapters."""
    chosen = UpdateSettings(**{"learning_rate": 1e-2, **settings})
    return PolicyWorker.load(str(folder), settings=chosen, cache_dir=tmp_path / "c", placement=Placement(lora=lora))


def iterate(worker, iteration=0):
    """Sample, credit by turns, update."""
    plan = SamplingPlan(group_size=2, max_tokens=4)
    rollouts = worker.generate(PROMPTS, plan, iteration=iteration, purpose="policy")
    advantages = Advantages(
        prompt_id_N=rollouts.prompt_id_N, value_N=[1.0, -1.0] * 2, active_N=[True] * 4, estimator="dr_grpo"
    )
    return rollouts, worker.update(worker.batch(rollouts, advantages, max_tokens=4))


def test_start_is_the_policy_that_was_loaded(tiny_folder, tmp_path):
    """Before any step the merged weights are those of the folder, and rollouts are those without adapters."""
    worker = adapted(tiny_folder, tmp_path)
    plain = PolicyWorker.load(str(tiny_folder), settings=UpdateSettings(), cache_dir=tmp_path)
    expected = plain.model.state_dict()
    actual = whole_weights(worker.model, keep=True)
    assert set(actual) <= set(expected)
    assert all(torch.equal(expected[name], value) for name, value in actual.items())
    assert iterate(plain)[0].token_ids_N == iterate(worker)[0].token_ids_N


def test_only_adapters_are_trained(tiny_folder, tmp_path):
    """After a step the frozen weights have every bit, the merged ones differ, and the sampler holds the merged ones."""
    worker = adapted(tiny_folder, tmp_path)
    frozen = {name: p.detach().clone() for name, p in worker.model.named_parameters() if not p.requires_grad}
    before = whole_weights(worker.model, keep=True)
    iterate(worker)
    assert all(torch.equal(frozen[name], dict(worker.model.named_parameters())[name]) for name in frozen)
    after = whole_weights(worker.model, keep=True)
    assert any(not torch.equal(before[name], after[name]) for name in after)
    sampler = worker._sampler.state_dict()
    assert all(torch.equal(value, sampler[name]) for name, value in after.items())
    assert iterate(worker, 1)[1].mismatch_max < 1e-4


def test_frozen_start_is_the_reference(tiny_folder, tmp_path):
    """The KL term is 0 at the start and positive after a step, without a second model."""
    worker = adapted(tiny_folder, tmp_path, kl_coefficient=0.1)
    assert iterate(worker)[1].kl == pytest.approx(0, abs=1e-6)
    assert iterate(worker, 1)[1].kl > 1e-6


def test_checkpoint_holds_adapter_and_merged_policy(tiny_folder, tmp_path):
    """A restored worker has every bit of adapter and optimiser, and the saved policy is the merged one."""
    worker = adapted(tiny_folder, tmp_path)
    iterate(worker)
    worker.save(tmp_path / "1", {"iteration": 1})
    back = adapted(tiny_folder, tmp_path)
    back.restore(tmp_path / "1")
    merged = load_pretrained(str(tmp_path / "1" / "policy"), cache_dir=tmp_path).model.state_dict()
    assert all(torch.equal(value, merged[name]) for name, value in whole_weights(back.model, keep=True).items())
    assert all("lora_" in name for name in load_file(tmp_path / "1" / "adapter" / "adapter_model.safetensors"))
    iterate(worker, 1)
    iterate(back, 1)
    one, two = worker.model.state_dict(), back.model.state_dict()
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_checkpoint_of_trained_weights_is_no_adapter(tiny_folder, tmp_path):
    """A run that trained the weights cannot go on with adapters."""
    plain = PolicyWorker.load(str(tiny_folder), settings=UpdateSettings(), cache_dir=tmp_path)
    plain.save(tmp_path / "0", {"iteration": 0})
    with pytest.raises(CheckpointError, match=r"must exist where lora.rank is set; got no such file"):
        adapted(tiny_folder, tmp_path).restore(tmp_path / "0")


def test_layers_that_are_not_there_are_named(tiny_folder, tmp_path):
    """Targets that match nothing are refused."""
    with pytest.raises(ConfigError, match=r"'lora.targets' must name layers of the model; got \('nothing',\)"):
        adapted(tiny_folder, tmp_path, lora=LoraSettings(rank=2, alpha=4.0, targets=("nothing",)))
