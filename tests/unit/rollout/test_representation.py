"""Representations: the mean last hidden state of the completion alone, whatever shares a pass with it."""

import numpy as np
import pytest
import torch
from tiny import tiny_byte_model

from rangeline.errors import BadInputError, RolloutError
from rangeline.records import RolloutSet
from rangeline.rollout.representation import mean_hidden

PROMPTS = ((5, 6, 7), (5, 6, 7), (9, 8, 7, 6, 5), (5, 6, 7), (1,))
COMPLETIONS = ((3, 4), (3, 4), (2,), (8, 9, 10), (4,))


@pytest.fixture(scope="module")
def model():
    """Return a tiny random Llama."""
    return tiny_byte_model()[0]


def _rollouts(prompts=PROMPTS, completions=COMPLETIONS):
    num = len(prompts)
    return RolloutSet(
        prompt_id_N=tuple(f"p{prompt}" for prompt in prompts),
        sample_N=(0,) * num,
        completion_N=("",) * num,
        prompt_token_ids_N=tuple(prompts),
        token_ids_N=tuple(completions),
        sampled_logprobs_N=tuple((0.0,) * len(ids) for ids in completions),
        finish_reason_N=("stop",) * num,
        policy_version=0,
    )


@pytest.mark.parametrize("budget", [1, 12, 4096])
def test_equals_the_model_read_row_by_row(model, budget):
    """Each row is the mean of the last hidden states of its completion, read alone after its prompt."""
    actual = mean_hidden(model, _rollouts(), micro_batch_tokens=budget)
    assert (np.float32, (5, 32)) == (actual.dtype, actual.shape)
    for row, prompt, ids in zip(actual, PROMPTS, COMPLETIONS, strict=True):
        with torch.no_grad():
            hidden = model.model(input_ids=torch.tensor([prompt + ids])).last_hidden_state[0, len(prompt) :]
        np.testing.assert_allclose(hidden.mean(dim=0).numpy(), row, atol=1e-5)


def test_equal_texts_have_one_representation(model):
    """Two rollouts of one text agree to the last bit, so that equal sides are seen as equal."""
    actual = mean_hidden(model, _rollouts())
    np.testing.assert_array_equal(actual[0], actual[1])


def test_order_of_rows_changes_nothing(model):
    """Rows come back in the order asked for."""
    forward = mean_hidden(model, _rollouts())
    backward = mean_hidden(model, _rollouts(PROMPTS[::-1], COMPLETIONS[::-1]))
    np.testing.assert_array_equal(forward, backward[::-1])


def test_a_completion_without_tokens_has_no_representation(model):
    """No token is NaN, never a vector of zeros."""
    actual = mean_hidden(model, _rollouts(((1, 2), (1, 2)), ((), (3,))))
    assert [True, False] == np.isnan(actual).all(axis=1).tolist()


def test_progress_reaches_its_end(model):
    """Progress counts distinct rollouts."""
    said = []
    mean_hidden(model, _rollouts(), micro_batch_tokens=1, progress=lambda done, total: said.append((done, total)))
    assert (4, 4) == said[-1]


def test_no_rollouts_are_refused(model):
    """Nothing to represent is an error."""
    with pytest.raises(BadInputError, match="'rollouts' and 'micro_batch_tokens' must be at least 1; got 0"):
        mean_hidden(model, _rollouts((), ()))


def test_what_does_not_fit_is_refused(model):
    """A row beyond the context names its prompt."""
    with pytest.raises(RolloutError, match=r"must fit the model's context of 512; got 514 tokens \(row 0"):
        mean_hidden(model, _rollouts(((1,) * 512,), ((2, 3),)))
