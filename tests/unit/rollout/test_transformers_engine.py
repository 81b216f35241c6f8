"""The in-process engine: stopping, refusals and drawing."""

import pytest
import torch
from tiny import tiny_byte_model as tiny

from rangeline.errors import RolloutError
from rangeline.records import SamplingPlan
from rangeline.rollout.engine import EncodedPrompt
from rangeline.rollout.transformers_engine import TransformersEngine, draw_tokens

PROMPTS = [EncodedPrompt(prompt_id="a", token_ids=(5, 6, 7)), EncodedPrompt(prompt_id="b", token_ids=(9,))]
KEY = {"run_seed": 0, "iteration": 0, "purpose": "rollout"}


def biased_towards_stop(strength):
    """Return the tiny model, whose head favours the end-of-sequence token for every state."""
    model, tokenizer = tiny()
    head = torch.nn.Linear(32, 300)
    with torch.no_grad():
        head.weight.copy_(model.lm_head.weight)
        head.bias.zero_()
        head.bias[tokenizer.eos_token_id] = strength
    model.set_output_embeddings(head)
    return model, tokenizer


def test_rows_stop_at_the_end_token():
    """The closing id is kept among the ids, left out of the text, and reported as stop."""
    rollouts = TransformersEngine(*biased_towards_stop(50.0), policy_version=3).generate(
        PROMPTS, SamplingPlan(group_size=2, max_tokens=5), **KEY
    )
    assert ((257,),) * 4 == rollouts.token_ids_N
    assert ("stop",) * 4 == rollouts.finish_reason_N
    assert ("",) * 4 == rollouts.completion_N
    assert 3 == rollouts.policy_version


def test_rows_end_each_in_their_own_time():
    """Rows that finish early change nothing for the others: greedy and sampled rows equal those sampled alone."""
    model, tokenizer = biased_towards_stop(6.0)
    plan = SamplingPlan(group_size=6, max_tokens=8)
    whole = TransformersEngine(model, tokenizer, policy_version=0).generate(PROMPTS, plan, **KEY)
    alone = TransformersEngine(model, tokenizer, policy_version=0).generate(PROMPTS[1:], plan, **KEY)
    assert 2 <= len({len(ids) for ids in whole.token_ids_N})
    assert {"stop", "length"} >= set(whole.finish_reason_N)
    assert alone.token_ids_N == whole.token_ids_N[6:]
    for ids, reason in zip(whole.token_ids_N, whole.finish_reason_N, strict=True):
        assert (reason == "stop") == (ids[-1] == tokenizer.eos_token_id)
        assert tokenizer.eos_token_id not in ids[:-1]


def test_the_mode_of_the_model_comes_back():
    """A model in training mode is sampled in eval mode and given back in training mode."""
    model, tokenizer = tiny()
    model.train()
    seen = []
    TransformersEngine(model, tokenizer, policy_version=0).generate(
        PROMPTS,
        SamplingPlan(group_size=1, max_tokens=1),
        progress=lambda done, total: seen.append((model.training, done, total)),
        **KEY,
    )
    assert [(False, 2, 2)] == seen
    assert model.training


def test_prompts_too_long_for_the_model_are_refused():
    """Prompt and cap together must fit the context."""
    engine = TransformersEngine(*tiny(), policy_version=0)
    with pytest.raises(RolloutError, match=r"context of 512; got 3 \+ 510 \(prompt 'a'\)"):
        engine.generate(PROMPTS, SamplingPlan(group_size=1, max_tokens=510), **KEY)


def test_logits_that_are_no_numbers_are_refused():
    """Broken weights are an error that names the prompt, never a sample."""
    model, tokenizer = tiny()
    with torch.no_grad():
        model.lm_head.weight[3] = float("nan")
    with pytest.raises(RolloutError, match=r"'logits' must be numbers; .*\(prompt 'a', token 0\)"):
        TransformersEngine(model, tokenizer, policy_version=0).generate(PROMPTS, SamplingPlan(group_size=1), **KEY)


def test_batches_hold_at_least_one_prompt():
    """A batch of no prompts would never end."""
    with pytest.raises(RolloutError, match="'prompts_per_batch' must be at least 1; got 0"):
        TransformersEngine(*tiny(), policy_version=0, prompts_per_batch=0)


def test_draws_invert_the_cumulated_probabilities():
    """Hand-worked: probabilities .25, .5, 0, .25 put u = 0, .25, .74, .75 and nearly 1 on tokens 0, 1, 1, 3, 3."""
    logits = torch.tensor([[0.25, 0.5, 0.0, 0.25]]).log().expand(5, 4)
    uniform = torch.tensor([0.0, 0.25, 0.74, 0.75, 1 - 2**-53], dtype=torch.float64)
    token, logprob = draw_tokens(logits, uniform, 1.0)
    assert [0, 1, 1, 3, 3] == token.tolist()
    torch.testing.assert_close(torch.tensor([0.25, 0.5, 0.5, 0.25, 0.25]).log(), logprob)


@pytest.mark.parametrize("size", [5, 256, 700])
@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_draws_equal_a_search_in_the_whole_cumulated_distribution(size, temperature):
    """Searching the block first finds the token that a float64 sum over all tokens finds, with its log-probability."""
    generator = torch.Generator().manual_seed(size)
    logits = 3 * torch.randn(40, size, generator=generator)
    logits[:, ::3] = -torch.inf
    uniform = torch.rand(40, generator=generator, dtype=torch.float64)
    exact = torch.softmax(logits.double() / temperature, dim=-1)
    expected = torch.searchsorted(exact.cumsum(dim=-1), uniform[:, None], right=True)
    token, logprob = draw_tokens(logits, uniform, temperature)
    assert expected[:, 0].tolist() == token.tolist()
    torch.testing.assert_close(exact.gather(-1, expected).log()[:, 0].float(), logprob, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("u", [0.0, 1 - 2**-53])
def test_the_ends_of_the_unit_interval_fall_on_possible_tokens(u):
    """The least and the largest draw take the first and the last token that has any mass, blocks of none apart."""
    logits = torch.full((1, 1000), -torch.inf)
    logits[0, [300, 600]] = 0.0
    token, _ = draw_tokens(logits, torch.tensor([u], dtype=torch.float64), 1.0)
    assert [600 if u else 300] == token.tolist()


def test_zero_temperature_takes_the_first_of_the_most_likely():
    """Of equal logits the first is taken, and its log-probability is that of temperature 1."""
    token, logprob = draw_tokens(torch.tensor([[0.0, 2.0, 2.0]]), torch.zeros(1, dtype=torch.float64), 0.0)
    assert [1] == token.tolist()
    torch.testing.assert_close(torch.log_softmax(torch.tensor([0.0, 2.0, 2.0]), -1)[1:2], logprob)
