"""Models with random start: made once, from an architecture and words, and loadable like any other."""

import pytest

from rangeline.errors import ModelLoadError
from rangeline.records import ChatMessage
from rangeline.rollout.fresh_model import fresh_model
from rangeline.rollout.pretrained import encode_prompt, load_pretrained

SMALL = {"n_layer": 1, "n_embd": 8, "n_head": 2, "n_positions": 8}
WORDS = ("fox", "owl", ">")


def _make(cache, *, architecture=SMALL, words=WORDS, seed=0, name="fresh:gpt2"):
    return fresh_model(name, architecture, words, seed=seed, cache_dir=cache)


def test_words_are_single_tokens(tmp_path):
    """Each word is one token, in prompts and answers alike, and tokens decode to the words."""
    loaded = load_pretrained(str(_make(tmp_path)), cache_dir=tmp_path)
    ids = encode_prompt(loaded.tokenizer, (ChatMessage("user", "owl fox >"),))
    assert (3, ["owl", "fox", ">"]) == (len(ids), [loaded.tokenizer.decode([token]) for token in ids])
    assert (4,) == tuple(loaded.tokenizer.encode("owl", add_special_tokens=False))


def test_same_arguments_give_the_same_weights(tmp_path):
    """The start is decided by its arguments: another folder holds the same bytes, another seed others."""
    digests = [
        load_pretrained(str(_make(tmp_path / place, seed=seed)), cache_dir=tmp_path).digest
        for place, seed in (("a", 0), ("b", 0), ("a", 1))
    ]
    assert digests[0] == digests[1] != digests[2]


def test_model_is_made_once(tmp_path):
    """A folder that is complete is used as it is; one without its marker is made anew."""
    folder = _make(tmp_path)
    stamp = (folder / "model.safetensors").stat().st_mtime_ns
    assert stamp == (_make(tmp_path) / "model.safetensors").stat().st_mtime_ns
    (folder / "COMPLETE").unlink()
    assert stamp != (_make(tmp_path) / "model.safetensors").stat().st_mtime_ns


@pytest.mark.parametrize(
    ("name", "architecture"), [("fresh:nothing", SMALL), ("fresh:gpt2", {**SMALL, "n_head": 3}), ("fresh:vit", {})]
)
def test_impossible_architectures_are_refused(tmp_path, name, architecture):
    """What transformers cannot make a causal language model of is refused, and nothing is left behind."""
    with pytest.raises(ModelLoadError, match=f"'policy.model' must be fresh:<type> .*; got '{name}'"):
        _make(tmp_path, name=name, architecture=architecture)
    assert not list(tmp_path.glob("fresh-*"))
