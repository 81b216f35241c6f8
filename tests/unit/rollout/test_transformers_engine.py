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
