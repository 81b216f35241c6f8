"""Make a small model with random weights and a tokenizer of whole words, from an architecture.

The weights are those that transformers draws for the configuration after `torch.manual_seed`; the tokenizer knows the
given words, a mark that closes a list, and three special tokens. The folder is an ordinary model folder, made once
for each set of arguments.
"""

import hashlib
import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

from rangeline.errors import ModelLoadError
from rangeline.rollout.pretrained import COMPLETE, put_in_place

PREFIX = "fresh:"
"""Of the names of models that do not exist yet, followed by their transformers type."""

_PAD, _END, _UNKNOWN = "<pad>", "<end>", "<unknown>"
_TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"


def fresh_model(
    name: str, architecture: Mapping[str, Any], words: Sequence[str], *, seed: int, cache_dir: Path
) -> Path:
    """Return the folder of a random model, made if it is not there.

    Parameters
    ----------
    name
        ``fresh:<type>``, such as ``fresh:gpt2``.
    architecture
        Fields of the type's configuration; vocabulary and special tokens are set here.
    words
        Vocabulary, each without blanks; marks that prompts use included.
    seed
        Of the random weights.
    cache_dir
        Where it is kept, by the digest of all arguments.

    Raises
    ------
    ModelLoadError
        If transformers cannot make a causal language model of this architecture.
    """
    kind = name.removeprefix(PREFIX)
    content = json.dumps([kind, dict(architecture), list(words), seed], sort_keys=True)
    target = cache_dir / f"fresh-{hashlib.sha256(content.encode()).hexdigest()[:16]}"
    if (target / COMPLETE).is_file():
        return target
    cache_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".making-", dir=cache_dir) as temporary:
        folder = Path(temporary) / target.name
        vocabulary = {token: i for i, token in enumerate([_PAD, _END, _UNKNOWN, *words])}
        _random_model(kind, architecture, vocabulary, seed).save_pretrained(folder)
        _word_tokenizer(vocabulary).save_pretrained(folder)
        (folder / COMPLETE).touch()
        put_in_place(folder, target)
    return target


def _random_model(kind: str, architecture: Mapping[str, Any], vocabulary: Mapping[str, int], seed: int) -> Any:
    special = {"bos_token_id": vocabulary[_END], "eos_token_id": vocabulary[_END], "pad_token_id": vocabulary[_PAD]}
    try:
        config = AutoConfig.for_model(kind, **{**architecture, **special, "vocab_size": len(vocabulary)})
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return AutoModelForCausalLM.from_config(config)
    except (ValueError, TypeError, KeyError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
        msg = (
            f"'policy.model' must be fresh:<type> of a causal language model; got '{PREFIX}{kind}' with "
            f"{dict(architecture)} ({reason}). Correct policy.model or policy.architecture."
        )
        raise ModelLoadError(msg) from error


def _word_tokenizer(vocabulary: Mapping[str, int]) -> PreTrainedTokenizerFast:
    raw = Tokenizer(models.WordLevel(dict(vocabulary), unk_token=_UNKNOWN))
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw, pad_token=_PAD, eos_token=_END, unk_token=_UNKNOWN, clean_up_tokenization_spaces=False
    )
    tokenizer.chat_template = _TEMPLATE
    return tokenizer
