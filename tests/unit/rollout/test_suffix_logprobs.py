"""Log-probabilities after shared prompts: the same as reading every row alone, and as the definition."""

import numpy as np
import pytest
import torch
from tiny import tiny_byte_model

from rangeline.rollout.suffix_logprobs import SuffixRow, suffix_logprobs, suffix_statistics

ROWS = [
    SuffixRow(prompt_ids=(5, 6, 7), suffix_ids=(8, 9, 10, 11), num_scored=2),
    SuffixRow(prompt_ids=(5, 6, 7), suffix_ids=(12,), num_scored=1),
    SuffixRow(prompt_ids=(40, 41, 42, 43, 44), suffix_ids=(8, 9), num_scored=2),
    SuffixRow(prompt_ids=(3,), suffix_ids=(8, 9, 4), num_scored=3),
]


@pytest.fixture(scope="module")
def model():
    """Give the tiny byte model."""
    return tiny_byte_model()[0]


def _by_definition(model, row):
    ids = torch.tensor([[*row.prompt_ids, *row.suffix_ids]])
    with torch.no_grad():
        logprobs = torch.log_softmax(model(ids).logits[0].double(), dim=-1)
    places = range(row.length - row.num_scored, row.length)
    chosen = torch.stack([logprobs[place - 1] for place in places])
    taken = chosen.gather(-1, ids[0, places.start :][:, None])[:, 0]
    entropy = -(chosen.exp() * chosen).sum(-1)
    distance = -chosen.mean(-1) - np.log(chosen.shape[-1])
    return torch.stack([taken, entropy, distance], dim=1).numpy()


@pytest.mark.parametrize("share_prefix", [True, False])
@pytest.mark.parametrize("budget", [1, 12, 8192])
def test_values_are_those_of_the_definition(model, share_prefix, budget):
    """Shared or whole, in whatever batches, each row has the values of reading it alone."""
    actual = suffix_statistics(model, ROWS, max_batch_tokens=budget, share_prefix=share_prefix)
    for row, values in zip(ROWS, actual, strict=True):
        np.testing.assert_allclose(values, _by_definition(model, row), atol=2e-5)
    alone = suffix_logprobs(model, ROWS, max_batch_tokens=budget, share_prefix=share_prefix)
    for values, logprobs in zip(actual, alone, strict=True):
        np.testing.assert_array_equal(values[:, 0], logprobs)


def test_no_tensor_of_the_whole_vocabulary_is_made(model):
    """The head sees scored tokens only: three of a row of hundreds, never the row."""
    seen = []
    hook = model.get_output_embeddings().register_forward_hook(lambda head, given, made: seen.append(made.shape))
    suffix_logprobs(model, [SuffixRow(prompt_ids=tuple(range(1, 200)), suffix_ids=(1, 2, 3), num_scored=3)])
    hook.remove()
    assert [torch.Size([3, 300])] == seen


def test_prompt_is_read_once(model):
    """Eight rows of one long prompt cost one reading of it."""
    sizes = []
    embed = model.get_input_embeddings()
    hook = embed.register_forward_hook(lambda layer, given, made: sizes.append(given[0].numel()))
    prompt = tuple(range(1, 101))
    suffix_logprobs(model, [SuffixRow(prompt_ids=prompt, suffix_ids=(i, 1), num_scored=1) for i in range(8)])
    hook.remove()
    assert [99, 16] == sizes


def test_row_beyond_the_context_is_none(model):
    """A row that does not fit has no value; the others do."""
    long = SuffixRow(prompt_ids=tuple([1] * 600), suffix_ids=(2,), num_scored=1)
    values = suffix_logprobs(model, [ROWS[0], long])
    assert [False, True] == [value is None for value in values]


def test_nothing_to_score_is_nothing(model):
    """No row gives no value."""
    assert [] == suffix_logprobs(model, [])
