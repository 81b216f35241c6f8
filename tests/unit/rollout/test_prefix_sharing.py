"""Shared prefixes: what is read once gives the states and gradients of whole rows."""

from contextlib import nullcontext

import pytest
import torch
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig, MistralConfig

from rangeline.policy.activation_checkpointing import allow_checkpointing, checkpointed_layers
from rangeline.policy.adapter import LoraSettings, add_adapter
from rangeline.rollout.prefix_sharing import hidden_before
from rangeline.rollout.reading import position_ids

SIZES = {
    "vocab_size": 40,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "initializer_range": 0.5,
}
LLAMA = LlamaConfig(**SIZES)
GPT2 = GPT2Config(vocab_size=40, n_embd=16, n_layer=2, n_head=2, initializer_range=0.5)
LONG, SHORT = (5, 6, 7, 8, 9, 10, 11, 12), (20, 21, 22, 23, 24, 25)
ROWS = [(LONG, (1, 2, 3)), (SHORT, (4,)), (LONG, (1, 9)), (LONG, (30, 31, 32, 33)), (SHORT, (4, 5)), (SHORT, (7, 8, 9))]


def model_of(config):
    """Return a random float64 model without dropout."""
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config).double().eval()


def padded(rows, side="right"):
    """Return ids, attention mask and keep mask of rows."""
    width = max(len(prompt) + len(rest) for prompt, rest in rows) + 1
    ids, mask, keep = (torch.zeros((len(rows), width), dtype=torch.int64) for _ in range(3))
    for i, (prompt, rest) in enumerate(rows):
        length = len(prompt) + len(rest)
        at = width - length if side == "left" else 0
        ids[i, at : at + length] = torch.tensor([*prompt, *rest])
        mask[i, at : at + length] = 1
        keep[i, at + len(prompt) : at + length] = 1
    return ids, mask, keep.bool()


def whole(model, ids, mask, keep):
    """Return the states of whole rows."""
    states = model.get_decoder()(input_ids=ids, attention_mask=mask, position_ids=position_ids(mask), use_cache=False)
    return states.last_hidden_state[:, :-1][keep[:, 1:]]


def tokens_read(model, ids, mask, keep):
    """Return how many tokens the decoder was given."""
    count = []
    decoder = model.get_decoder()
    handle = decoder.register_forward_pre_hook(
        lambda module, inputs, options: count.append(options["input_ids"].numel()), with_kwargs=True
    )
    hidden_before(model, ids, mask, keep)
    handle.remove()
    return sum(count)


@pytest.mark.parametrize(("config", "tolerance"), [(LLAMA, 1e-5), (GPT2, 1e-9)], ids=["llama", "gpt2"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_states_and_gradients_equal_those_of_whole_rows(config, tolerance, side):
    """In float64 states and every gradient agree, rows being unequal; Llama's own norm rounds to float32 inside."""
    model = model_of(config)
    inputs = padded(ROWS, side)
    results = []
    for read in (whole, hidden_before):
        states = read(model, *inputs)
        weight = torch.arange(states.numel(), dtype=torch.float64).reshape(states.shape).sin()
        parameters = list(model.get_decoder().parameters())
        gradients = torch.autograd.grad((weight * states).sum(), parameters, allow_unused=True)
        results.append([states, *(item for item in gradients if item is not None)])
    assert len(results[0]) == len(results[1])
    for expected, actual in zip(*results, strict=True):
        torch.testing.assert_close(expected, actual, atol=tolerance, rtol=tolerance)


def test_a_kept_middle_is_found_where_it_lies():
    """Kept tokens may begin late and end early; what follows them is not read."""
    model = model_of(LLAMA)
    ids, mask, keep = padded(ROWS)
    keep[3, len(LONG)] = False
    keep[3, len(LONG) + 3] = False
    expected, actual = whole(model, ids, mask, keep), hidden_before(model, ids, mask, keep)
    torch.testing.assert_close(expected, actual, atol=1e-5, rtol=1e-5)


def test_each_prefix_is_read_once():
    """Two prompts of eight and six tokens and six rests of at most four: 2 * 7 and 6 * 4 tokens are read."""
    assert 2 * 7 + 6 * 4 == tokens_read(model_of(LLAMA), *padded(ROWS))


@pytest.mark.parametrize(
    ("config", "rows"),
    [
        (MistralConfig(**SIZES, sliding_window=4), ROWS),
        (LLAMA, [*ROWS, (SHORT, ())]),
        (LLAMA, [(LONG, (1,)), (SHORT, (2,))]),
        (LLAMA, [((5,), (1, 2)), ((5,), (3, 4))]),
    ],
    ids=["sliding window", "a row that keeps nothing", "no repeated prompt", "prompts of one token"],
)
def test_whole_rows_are_read_where_sharing_is_impossible_or_saves_nothing(config, rows):
    """Then every row is read but for its last column, and states are those of whole rows."""
    model = model_of(config)
    ids, mask, keep = padded(rows)
    assert ids[:, :-1].numel() == tokens_read(model, ids, mask, keep)
    expected, actual = whole(model, ids, mask, keep), hidden_before(model, ids, mask, keep)
    torch.testing.assert_close(expected, actual, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("adapted", [False, True], ids=["weights", "adapters"])
@pytest.mark.parametrize("config", [LLAMA, GPT2], ids=["llama", "gpt2"])
def test_checkpointed_layers_read_whole_rows(config, adapted):
    """Layers in training mode drop caches, whatever mode the decoder is in: states and gradients are of whole rows."""
    model = model_of(config)
    if adapted:
        model = add_adapter(model, LoraSettings(rank=2, alpha=4.0), seed=0)
    allow_checkpointing(model)
    ids, mask, keep = padded(ROWS)
    parameters = [item for name, item in model.named_parameters() if item.requires_grad and "lm_head" not in name]
    results = []
    for read, block in ((whole, nullcontext()), (hidden_before, checkpointed_layers(model))):
        with block:
            states = read(model, ids, mask, keep)
            weight = torch.arange(states.numel(), dtype=states.dtype).reshape(states.shape).sin()
            results.append([states, *torch.autograd.grad((weight * states).sum(), parameters, allow_unused=True)])
    for expected, actual in zip(*results, strict=True):
        torch.testing.assert_close(expected, actual, atol=1e-9, rtol=1e-9)
