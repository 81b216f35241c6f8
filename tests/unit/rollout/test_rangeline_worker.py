"""Laws of what the server's workers check before they load a checkpoint; vLLM itself is stood in for."""

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file

from rangeline.rollout.worker_side.rangeline_worker import (
    CheckpointRefusedError,
    RangelineWorker,
    checked_files,
    require_same_tensors,
    shapes_of,
    weight_files,
)
from rangeline.rollout.worker_side.serve_vllm import arguments, environment


def checkpoint(folder, **tensors):
    """Write a complete checkpoint of tensors."""
    folder.mkdir(parents=True)
    save_file(tensors, folder / "model.safetensors")
    size = (folder / "model.safetensors").stat().st_size
    (folder / "COMPLETE").write_text(json.dumps({"files": {"model.safetensors": {"size": size}}}))
    return folder


class StandIn(RangelineWorker):
    """What vLLM's worker gives the extension: a model that remembers what was loaded, and a load that may fail."""

    def __init__(self, first, *, fails=False):
        self.device = SimpleNamespace(type="cpu")
        self.model_config = SimpleNamespace(model=str(first), logprobs_mode="processed_logprobs")
        self.cache_config = SimpleNamespace(block_size=128)
        self.vllm_config = SimpleNamespace(lora_config=None)
        self.model_runner = SimpleNamespace(get_model=lambda: torch.nn.Module())
        self.loaded, self.fails = {}, fails

    def reload_weights(self, weights_iterator):
        """Take the tensors one by one; fail at the second where asked."""
        for name, value in weights_iterator:
            if self.fails and self.loaded:
                msg = "out of memory"
                raise RuntimeError(msg)
            self.loaded[name] = value


A, B = torch.zeros(2, 3), torch.ones(4)


@pytest.fixture
def root(tmp_path, monkeypatch):
    """Give the root of checkpoints, as the server's environment names it."""
    monkeypatch.setenv("RANGELINE_SYNC_ROOT", str(tmp_path / "root"))
    return tmp_path / "root"


def test_a_complete_checkpoint_is_loaded_whole(root, tmp_path):
    """Every tensor of the checkpoint reaches the model, by its name."""
    worker = StandIn(checkpoint(tmp_path / "first", a=A, b=B))
    reply = worker.rangeline_load(str(checkpoint(root / "new", a=A + 1, b=B + 1)))
    assert {"state": "loaded", "reason": "", "files": 1} == reply
    assert {"a": 6.0, "b": 8.0} == {name: float(value.sum()) for name, value in worker.loaded.items()}


@pytest.mark.parametrize(
    ("tensors", "match"),
    [
        ({"a": A}, r"missing \['b'\]"),
        ({"a": A, "b": B, "c": B + 1}, r"unknown \['c'\]"),
        ({"a": A.T.contiguous(), "b": B}, r"'a' must have shape \(2, 3\); got \(3, 2\)"),
    ],
)
def test_other_tensors_are_refused_with_nothing_loaded(root, tmp_path, tensors, match):
    """A missing, unknown or reshaped tensor is refused before the first one is read."""
    worker = StandIn(checkpoint(tmp_path / "first", a=A, b=B))
    reply = worker.rangeline_load(str(checkpoint(root / "new", **tensors)))
    assert "refused" == reply["state"]
    with pytest.raises(CheckpointRefusedError, match=match):
        raise CheckpointRefusedError(reply["reason"])
    assert {} == worker.loaded


def test_the_first_tensors_are_remembered(root, tmp_path):
    """A stock reload renames the model's folder; what updates are compared with stays the first model's."""
    worker = StandIn(checkpoint(tmp_path / "first", a=A, b=B))
    assert {"device", "model", "root", "logprobs_mode", "block_size", "lora"} == set(worker.rangeline_describe())
    worker.model_config.model = "/gone"
    assert "loaded" == worker.rangeline_load(str(checkpoint(root / "new", a=A, b=B)))["state"]


def test_a_load_that_fails_midway_is_not_called_refused(root, tmp_path):
    """Where the load itself fails, the caller is told by the error: half of the tensors are new."""
    worker = StandIn(checkpoint(tmp_path / "first", a=A, b=B), fails=True)
    with pytest.raises(RuntimeError, match="out of memory"):
        worker.rangeline_load(str(checkpoint(root / "new", a=A, b=B)))
    assert 1 == len(worker.loaded)


def test_folders_outside_the_root_are_refused(root, tmp_path):
    """Neither another folder, nor a link to one, nor the root, nor a root that is not set."""
    outside = checkpoint(tmp_path / "outside", a=A)
    root.mkdir()
    (root / "link").symlink_to(outside)
    for folder in (outside, root / "link", root / ".." / "outside", root):
        with pytest.raises(CheckpointRefusedError, match="must lie below"):
            checked_files(folder, root=str(root))
    with pytest.raises(CheckpointRefusedError, match="must be set where the server is started"):
        checked_files(outside, root="")


@pytest.mark.parametrize(
    ("marker", "match"),
    [
        (None, "must list the files of a complete checkpoint; got FileNotFoundError"),
        ("{", "must list the files of a complete checkpoint; got JSONDecodeError"),
        ("[]", "must list the files of a complete checkpoint; got TypeError"),
        ('{"files": {"model.safetensors": {"size": 3}}}', "must have 3 bytes; got"),
        ('{"files": {"other.safetensors": {"size": 3}}}', "must have 3 bytes; got no file"),
        ('{"files": {"../outside/model.safetensors": {"size": 3}}}', "must have 3 bytes"),
        ('{"files": {}}', r"must list every weight file; got none for \['model.safetensors'\]"),
    ],
)
def test_unfinished_checkpoints_are_refused(root, marker, match):
    """A marker that is absent, damaged, or lists other files or sizes is no complete checkpoint."""
    folder = checkpoint(root / "new", a=A)
    (folder / "COMPLETE").unlink()
    if marker is not None:
        (folder / "COMPLETE").write_text(marker)
    with pytest.raises(CheckpointRefusedError, match=match):
        checked_files(folder, root=str(root))


@pytest.mark.parametrize("content", [b"", b"\x05", b"\xff" * 8 + b"{}", b"\x02" + b"\0" * 7 + b"[]"])
def test_damaged_weight_files_are_refused(tmp_path, content):
    """What is no safetensors file is refused by its header."""
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(CheckpointRefusedError, match=r"must be a safetensors file|must have \d+ bytes"):
        shapes_of([tmp_path / "model.safetensors"])


def test_files_of_another_length_than_their_header_says_are_refused(tmp_path):
    """A file that was cut or grew is refused before its tensors are read."""
    folder = checkpoint(tmp_path / "new", a=A)
    with (folder / "model.safetensors").open("ab") as file:
        file.write(b"x")
    with pytest.raises(CheckpointRefusedError, match=r"must have \d+ bytes"):
        shapes_of(weight_files(folder))


def test_shards_are_those_of_the_index(tmp_path):
    """An index names its shards, all of which must be there, and no tensor may stand in two."""
    folder = checkpoint(tmp_path / "new", a=A)
    index = {"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    save_file({"a": A}, folder / "one.safetensors")
    with pytest.raises(CheckpointRefusedError, match=r"got none of \['two.safetensors'\]"):
        weight_files(folder)
    save_file({"b": B}, folder / "two.safetensors")
    assert {"a": (2, 3), "b": (4,)} == shapes_of(weight_files(folder))
    save_file({"a": A}, folder / "two.safetensors")
    with pytest.raises(CheckpointRefusedError, match="got 'a' again"):
        shapes_of(weight_files(folder))


def test_equal_tensors_are_taken():
    """The same names and shapes are no reason to refuse."""
    require_same_tensors({"a": (2,)}, {"a": (2,)})


OPTIONS = {"model": "/m", "root": "/r", "host": "127.0.0.1", "port": 1, "served_name": "policy", "max_model_len": 512}


def test_what_a_server_is_started_with_depends_on_the_machine():
    """A CPU serves float32, whole prompts and one process less; a GPU serves bfloat16 with vLLM's own choices."""
    cpu, gpu = arguments(OPTIONS, cpu=True), arguments(OPTIONS, cpu=False)
    assert ("float32", "bfloat16") == tuple(words[words.index("--dtype") + 1] for words in (cpu, gpu))
    assert "4096" == cpu[cpu.index("--max-num-batched-tokens") + 1]
    assert "--no-enable-chunked-prefill" not in gpu
    for words in (cpu, gpu):
        assert "127.0.0.1" == words[words.index("--host") + 1]
        assert "vllm" == words[words.index("--generation-config") + 1]
        assert "processed_logprobs" == words[words.index("--logprobs-mode") + 1]
    assert "VLLM_CPU_KVCACHE_SPACE" not in environment(OPTIONS, cpu=False)
    assert "/r" == environment(OPTIONS, cpu=True)["RANGELINE_SYNC_ROOT"]


def test_adapters_and_transfers_are_asked_for():
    """LoRA and a weight transfer are off unless options name them."""
    assert not {"--enable-lora", "--weight-transfer-config"} & set(arguments(OPTIONS, cpu=False))
    words = arguments({**OPTIONS, "lora": True, "transfer": "nccl", "extra": ["--tensor-parallel-size", 2]}, cpu=False)
    assert {"--enable-lora", "--weight-transfer-config", '{"backend": "nccl"}', "2"} <= set(words)


def test_the_workers_side_needs_nothing_of_ours(tmp_path):
    """Both files can be read where Rangeline is not installed: vLLM's environment holds none of it."""
    import subprocess

    from rangeline.rollout import worker_side

    code = "import rangeline_worker, serve_vllm, sys; print('rangeline' in sys.modules, 'vllm' in sys.modules)"
    environ = {"PYTHONPATH": str(Path(worker_side.__file__).parent), "PATH": os.environ["PATH"]}
    reply = subprocess.run(
        [sys.executable, "-S", "-c", code], env=environ, cwd=tmp_path, capture_output=True, text=True
    )
    assert "False False" == reply.stdout.strip()
