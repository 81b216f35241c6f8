"""A tiny random policy with a tokenizer, as a model, a folder and a loaded pair."""

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from rangeline.policy.batch import build_batch
from rangeline.records import Advantages, RolloutSet


def make_model(seed=0, **changes):
    """Make a tiny random policy."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        **{
            "vocab_size": 300,
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "initializer_range": 0.3,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "pad_token_id": 0,
            **changes,
        }
    )
    return LlamaForCausalLM(config).eval()


def make_batch(values=(1.0, -1.0, 0.5, -0.5), seed=0, sampled=-5.0):
    """Make four rollouts of two prompts."""
    draw = np.random.default_rng(seed)
    lengths = (3, 2, 1, 4)
    rollouts = RolloutSet(
        prompt_id_N=("p", "p", "q", "q"),
        sample_N=(0, 1, 0, 1),
        completion_N=("",) * 4,
        prompt_token_ids_N=((3, 4), (3, 4), (5,), (5,)),
        token_ids_N=tuple(tuple(int(v) for v in draw.integers(3, 300, n)) for n in lengths),
        sampled_logprobs_N=tuple((sampled,) * n for n in lengths),
        finish_reason_N=("stop",) * 4,
        policy_version=0,
    )
    advantages = Advantages(prompt_id_N=rollouts.prompt_id_N, value_N=values, active_N=[True] * 4, estimator="dr_grpo")
    return build_batch(rollouts, advantages, pad_id=0, max_tokens=4)


@pytest.fixture
def tiny_model():
    """Give the maker of tiny policies."""
    return make_model


@pytest.fixture
def tiny_batch():
    """Give the maker of small batches."""
    return make_batch


@pytest.fixture
def tiny_folder(tmp_path):
    """Give a folder with a tiny policy and a word tokenizer."""
    vocabulary = {"<pad>": 0, "<s>": 1, "</s>": 2, **{f"w{i}": i for i in range(3, 300)}}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", bos_token="<s>", eos_token="</s>")
    folder = tmp_path / "tiny"
    make_model().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
