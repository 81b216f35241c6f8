"""Laws of the resident policy: versions stay in step, and a restored worker continues the run."""

import pytest
import torch

from rangeline.errors import CheckpointError, ConfigError
from rangeline.policy.supervised import SupervisedRow
from rangeline.policy.trainer import UpdateSettings
from rangeline.policy.worker import Placement, PolicyWorker
from rangeline.records import Advantages, SamplingPlan
from rangeline.rollout.engine import EncodedPrompt
from rangeline.rollout.pretrained import load_pretrained

PROMPTS = (EncodedPrompt(prompt_id="p", token_ids=(3, 4)), EncodedPrompt(prompt_id="q", token_ids=(5,)))
PLAN = SamplingPlan(group_size=2, temperature=1.0, max_tokens=4)


def worker_of(folder, tmp_path, **changes):
    """Load a worker of the tiny folder."""
    settings = UpdateSettings(**{"learning_rate": 1e-2, **changes.pop("settings", {})})
    return PolicyWorker.load(str(folder), settings=settings, cache_dir=tmp_path / "cache", **changes)


def iterate(worker, iteration):
    """Sample, credit alternating rollouts, and update."""
    rollouts = worker.generate(PROMPTS, PLAN, iteration=iteration, purpose="policy")
    advantages = Advantages(
        prompt_id_N=rollouts.prompt_id_N, value_N=[1.0, -1.0] * 2, active_N=[True] * 4, estimator="dr_grpo"
    )
    return rollouts, worker.update(worker.batch(rollouts, advantages, max_tokens=4))


def test_version_rises_with_each_update(tiny_folder, tmp_path):
    """Rollouts carry the version that sampled them; each update and supervised step raises it by one."""
    worker = worker_of(tiny_folder, tmp_path)
    first, _ = iterate(worker, 0)
    worker.supervised_step([SupervisedRow(prompt_ids=(3,), target_ids=(7,))])
    second, _ = iterate(worker, 1)
    assert (first.policy_version, second.policy_version, worker.policy_version) == (0, 2, 3)


def test_skipped_update_keeps_the_version(tiny_folder, tmp_path):
    """Without signal no step is taken and the version stays."""
    worker = worker_of(tiny_folder, tmp_path)
    rollouts = worker.generate(PROMPTS, PLAN, iteration=0, purpose="policy")
    zeros = Advantages(prompt_id_N=rollouts.prompt_id_N, value_N=[0.0] * 4, active_N=[False] * 4, estimator="dr_grpo")
    assert worker.update(worker.batch(rollouts, zeros, max_tokens=4)).skipped
    assert worker.policy_version == 0


def test_engine_and_trainer_agree(tiny_folder, tmp_path):
    """In float32 the sampled log-probs are the trainer's, before and after an update."""
    worker = worker_of(tiny_folder, tmp_path)
    assert [iterate(worker, i)[1].mismatch_max < 1e-4 for i in range(2)] == [True, True]


def test_cast_sampler_follows_the_policy(tiny_folder, tmp_path):
    """A sampler of lower precision holds the rounded weights of the current policy, and float32 buffers."""
    worker = worker_of(tiny_folder, tmp_path, sampler_dtype="bfloat16")
    _, report = iterate(worker, 0)
    pairs = zip(worker._sampler.parameters(), worker.model.parameters(), strict=True)
    assert all(torch.equal(cast, full.detach().to(torch.bfloat16)) for cast, full in pairs)
    assert torch.float32 == worker._sampler.model.rotary_emb.inv_freq.dtype
    assert 0 < report.mismatch_max < 1


def test_restored_worker_continues_bit_for_bit(tiny_folder, tmp_path):
    """Two iterations equal one, save, a fresh worker, restore, one more."""
    whole, broken = worker_of(tiny_folder, tmp_path), worker_of(tiny_folder, tmp_path)
    iterate(whole, 0)
    expected, _ = iterate(whole, 1)
    iterate(broken, 0)
    broken.save(tmp_path / "runs" / "1", {"iteration": 1})
    broken.close()
    resumed = worker_of(tiny_folder, tmp_path)
    assert resumed.restore(tmp_path / "runs" / "1")["iteration"] == 1
    actual, _ = iterate(resumed, 1)
    assert expected.token_ids_N == actual.token_ids_N
    assert whole.policy_version == resumed.policy_version
    assert all(torch.equal(a, b) for a, b in zip(whole.model.parameters(), resumed.model.parameters(), strict=True))


def test_reference_of_a_resumed_run_is_the_initial_policy(tiny_folder, tmp_path):
    """After restoring, the KL term still measures the distance to where the run began."""
    settings = {"kl_coefficient": 0.1}
    worker = worker_of(tiny_folder, tmp_path, settings=settings)
    iterate(worker, 0)
    worker.save(tmp_path / "1", {"iteration": 1})
    resumed = worker_of(tiny_folder, tmp_path, settings=settings)
    resumed.restore(tmp_path / "1")
    assert iterate(worker, 1)[1].kl == iterate(resumed, 1)[1].kl > 0


def test_saved_policy_loads_like_any_model(tiny_folder, tmp_path):
    """The policy folder of a checkpoint is a model with its tokenizer."""
    worker = worker_of(tiny_folder, tmp_path)
    iterate(worker, 0)
    worker.save(tmp_path / "1", {"iteration": 1})
    loaded = load_pretrained(str(tmp_path / "1" / "policy"), cache_dir=tmp_path / "cache")
    assert all(torch.equal(a, b) for a, b in zip(worker.model.parameters(), loaded.model.parameters(), strict=True))
    assert worker.pad_id == loaded.tokenizer.pad_token_id == 0


def test_checkpoint_of_another_seed_is_refused(tiny_folder, tmp_path):
    """A run cannot continue under another seed."""
    worker_of(tiny_folder, tmp_path).save(tmp_path / "0", {"iteration": 0})
    with pytest.raises(CheckpointError, match="'seed' must equal the checkpoint's 0; got 5"):
        worker_of(tiny_folder, tmp_path, seed=5).restore(tmp_path / "0")


def test_processes_that_were_not_started_are_refused(tiny_folder, tmp_path):
    """A second process that was asked for and is not there is refused, never silently ignored."""
    pretrained = load_pretrained(str(tiny_folder), cache_dir=tmp_path)
    with pytest.raises(ConfigError, match="'num_processes' must equal the started processes; got 1 for 2 asked"):
        PolicyWorker(pretrained, settings=UpdateSettings(), placement=Placement(num_processes=2))


def test_unknown_sampler_precision_is_refused(tiny_folder, tmp_path):
    """An unknown precision is named before anything is copied."""
    with pytest.raises(ConfigError, match="'sampler_dtype' must be float32, bfloat16 or float16; got 'int8'"):
        worker_of(tiny_folder, tmp_path, sampler_dtype="int8")
