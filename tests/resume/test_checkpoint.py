"""Laws of checkpoints: whole or absent, newest complete first, and a resumed run repeats every bit."""

import json
import os
import shutil

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from rangeline.errors import CheckpointError
from rangeline.lineage import digest_file
from rangeline.policy.batch import build_batch
from rangeline.policy.checkpoint import (
    find_checkpoint,
    is_complete,
    latest_complete,
    load_checkpoint,
    read_state,
    save_checkpoint,
    verify_checkpoint,
)
from rangeline.policy.retention import prune
from rangeline.policy.trainer import PolicyTrainer, UpdateSettings
from rangeline.records import Advantages, RolloutSet


def make_trainer(*, seed=0, hidden=32, tied=False):
    """Make a trainer of a tiny random policy."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=300,
        hidden_size=hidden,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        initializer_range=0.3,
        tie_word_embeddings=tied,
    )
    return PolicyTrainer(LlamaForCausalLM(config), UpdateSettings(learning_rate=1e-2, updates_per_batch=2), cpu=True)


def step(trainer, iteration):
    """Update on rollouts drawn from the iteration's number."""
    draw = np.random.default_rng(iteration)
    rollouts = RolloutSet(
        prompt_id_N=("p", "p"),
        sample_N=(0, 1),
        completion_N=("", ""),
        prompt_token_ids_N=((3, 4), (3, 4)),
        token_ids_N=tuple(tuple(int(v) for v in draw.integers(3, 300, 3)) for _ in range(2)),
        sampled_logprobs_N=((-1.0,) * 3,) * 2,
        finish_reason_N=("stop", "stop"),
        policy_version=iteration,
    )
    advantages = Advantages(prompt_id_N=("p", "p"), value_N=[1.0, -1.0], active_N=[True, True], estimator="dr_grpo")
    trainer.update(build_batch(rollouts, advantages, pad_id=0, max_tokens=4))


def save(trainer, folder, iteration=0, **state):
    """Save a trainer and return the folder."""
    save_checkpoint(
        folder,
        model=trainer.model,
        tokenizer=None,
        optimizer=trainer.optimizer,
        state={"iteration": iteration, "policy_version": iteration, **state},
    )
    return folder


def digests(folder):
    """Hash every file of a folder."""
    return {path.relative_to(folder).as_posix(): digest_file(path) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("tied", [False, True])
def test_resumed_run_repeats_every_byte(tmp_path, tied):
    """Four updates equal two, save, a fresh process's load, two more: all files have the same bytes."""
    whole, first, second = (make_trainer(seed=seed, tied=tied) for seed in (0, 0, 9))
    for iteration in range(4):
        step(whole, iteration)
    for iteration in range(2):
        step(first, iteration)
    load_checkpoint(save(first, tmp_path / "half", 2), second)
    for iteration in range(2, 4):
        step(second, iteration)
    assert digests(save(whole, tmp_path / "whole", 4)) == digests(save(second, tmp_path / "resumed", 4))


def test_state_comes_back(tmp_path):
    """Whatever JSON the run put in comes back, keys sorted on disk."""
    trainer = make_trainer()
    folder = save(trainer, tmp_path / "a", 3, ema=0.1 + 0.2, config_digest="abc")
    expected = {"iteration": 3, "policy_version": 3, "ema": 0.1 + 0.2, "config_digest": "abc"}
    assert expected == load_checkpoint(folder, trainer) == read_state(folder)
    assert sorted(expected) == list(json.loads((folder / "state.json").read_text()))


def test_checkpoint_before_any_step_can_be_resumed(tmp_path):
    """An optimiser without state is saved and restored as such."""
    folder, other = save(make_trainer(), tmp_path / "a"), make_trainer(seed=1)
    load_checkpoint(folder, other)
    assert other.optimizer.state_dict()["state"] == {}


def test_nothing_is_pickled(tmp_path):
    """Tensors are safetensors, all else is JSON."""
    trainer = make_trainer()
    step(trainer, 0)
    suffixes = {path.suffix for path in save(trainer, tmp_path / "a").rglob("*") if path.is_file()}
    assert {".safetensors", ".json", ""} == suffixes


@pytest.mark.parametrize(
    "name", ["policy/model.safetensors", "policy/config.json", "optimizer.safetensors", "state.json", "COMPLETE"]
)
def test_lost_file_is_named_and_passed_over(tmp_path, name):
    """A checkpoint that lacks a file is never taken, and the reason names the file."""
    trainer = make_trainer()
    step(trainer, 0)
    good, bad = save(trainer, tmp_path / "1", 1), save(trainer, tmp_path / "2", 2)
    (bad / name).unlink()
    found = find_checkpoint(tmp_path)
    assert good == found.path
    assert [bad] == [path for path, _ in found.passed_over]
    assert name in found.passed_over[0][1]
    with pytest.raises(CheckpointError, match=f"{name}' must .*; got no such file"):
        load_checkpoint(bad, trainer)


@pytest.mark.parametrize("name", ["policy/model.safetensors", "optimizer.safetensors", "COMPLETE"])
def test_truncated_file_is_named_and_passed_over(tmp_path, name):
    """A file cut short makes the checkpoint incomplete, the marker itself included."""
    trainer = make_trainer()
    step(trainer, 0)
    good, bad = save(trainer, tmp_path / "1", 1), save(trainer, tmp_path / "2", 2)
    os.truncate(bad / name, (bad / name).stat().st_size // 2)
    assert good == latest_complete(tmp_path)
    assert not is_complete(bad)
    with pytest.raises(CheckpointError, match=f"{name}' must .*; got"):
        read_state(bad)


def test_changed_byte_is_found_by_hash(tmp_path):
    """Equal sizes are not enough to load: one changed byte is refused, and nothing is restored."""
    trainer = make_trainer()
    folder = save(trainer, tmp_path / "1")
    path = folder / "policy" / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))
    before = [parameter.detach().clone() for parameter in trainer.model.parameters()]
    with pytest.raises(CheckpointError, match=r"model.safetensors' must have sha256"):
        load_checkpoint(folder, trainer)
    assert all(torch.equal(a, b) for a, b in zip(before, trainer.model.parameters(), strict=True))
    with pytest.raises(CheckpointError, match="must have sha256"):
        verify_checkpoint(folder)


def test_killed_writer_leaves_nothing_that_looks_finished(tmp_path):
    """Whatever prefix of the files a killed writer left, under a partial or a final name, it is never taken."""
    trainer = make_trainer()
    good = save(trainer, tmp_path / "1", 1)
    names = sorted(path.relative_to(good) for path in good.rglob("*") if path.is_file())
    for count in range(len(names)):
        for name in (f"2.partial-{count}", f"3-{count}"):
            for file in [item for item in names if item.name != "COMPLETE"][:count]:
                (tmp_path / name / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(good / file, tmp_path / name / file)
    assert good == latest_complete(tmp_path)


def test_whole_partial_folder_is_not_taken(tmp_path):
    """A folder that never got its name is passed over even when its files are whole."""
    save(make_trainer(), tmp_path / "1", 1).rename(tmp_path / "1.partial-77")
    found = find_checkpoint(tmp_path)
    assert found.path is None
    assert "unfinished work" in found.passed_over[0][1]


def test_latest_goes_by_iteration(tmp_path):
    """The largest iteration wins, whatever the names or the order of writing."""
    trainer = make_trainer()
    save(trainer, tmp_path / "a", 10)
    save(trainer, tmp_path / "b", 9)
    assert tmp_path / "a" == latest_complete(tmp_path)


def test_no_root_has_no_checkpoint(tmp_path):
    """A run that never saved has none."""
    assert latest_complete(tmp_path / "absent") is None


def test_saving_again_replaces_the_whole_folder(tmp_path):
    """A second save under one name leaves its own files only."""
    trainer = make_trainer()
    folder = save(trainer, tmp_path / "1", 1)
    (folder / "stray").write_text("x")
    save(trainer, folder, 2)
    assert read_state(folder)["iteration"] == 2
    assert [path.name for path in tmp_path.iterdir()] == ["1"]
    assert not (folder / "stray").exists()


def test_prune_keeps_the_named_and_clears_leftovers(tmp_path):
    """Checkpoints that are not named and partial folders go; incomplete ones under a final name stay to be seen."""
    trainer = make_trainer()
    for iteration in (1, 2, 10):
        save(trainer, tmp_path / str(iteration), iteration)
    (tmp_path / "3.partial-5").mkdir()
    (tmp_path / "broken").mkdir()
    assert {tmp_path / "1", tmp_path / "3.partial-5"} == set(prune(tmp_path, {"2", "10"}))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["10", "2", "broken"]


def test_prune_never_deletes_all(tmp_path):
    """Keeping nothing that is complete is refused, and nothing is deleted."""
    folder = save(make_trainer(), tmp_path / "1", 1)
    with pytest.raises(CheckpointError, match=r"'keep' must name a complete checkpoint; got \['2'\]"):
        prune(tmp_path, {"2"})
    assert is_complete(folder)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"policy_version": 1}, "'iteration' must be an integer of the state; got None"),
        ({"iteration": 1, "policy_version": "2"}, "'policy_version' must be an integer of the state; got '2'"),
        ({"iteration": 1, "policy_version": 1, "ema": float("nan")}, "'state' must hold finite JSON values; got"),
        ({"iteration": 1, "policy_version": 1, "x": object()}, "'state' must hold finite JSON values; got"),
    ],
)
def test_unusable_state_writes_nothing(tmp_path, state, message):
    """A state that could not be read back is refused before the disk is touched."""
    trainer = make_trainer()
    with pytest.raises(CheckpointError, match=message):
        save_checkpoint(tmp_path / "1", model=trainer.model, tokenizer=None, optimizer=trainer.optimizer, state=state)
    assert list(tmp_path.iterdir()) == []


def test_checkpoint_of_another_architecture_is_refused(tmp_path):
    """Weights of another shape are an error that names the folder, not a partial load."""
    folder = save(make_trainer(hidden=16), tmp_path / "1")
    with pytest.raises(CheckpointError, match="policy' must hold weights of this LlamaForCausalLM; got"):
        load_checkpoint(folder, make_trainer())
