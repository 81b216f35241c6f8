"""Laws of every rollout engine: one suite for the in-process engine, the vLLM server and the scripted stand-in."""

import numpy as np
import pytest
import torch
from served import KEY, encoded, tied_model

from rangeline.errors import RolloutError
from rangeline.records import SamplingPlan
from rangeline.rollout.engine import EncodedPrompt, ScriptedEngine
from rangeline.rollout.transformers_engine import TransformersEngine

SERVER = pytest.param("vllm", marks=[pytest.mark.slow, pytest.mark.vllm])
PLAN = SamplingPlan(group_size=4, temperature=1.0, max_tokens=6)


@pytest.fixture(params=["scripted", "transformers", SERVER])
def engine_of(request):
    """Give a maker of engines of one kind on a model; the scripted one recites, whatever the model."""
    if request.param == "vllm":
        return request.getfixturevalue("vllm_served").hold

    def make(model, tokenizer):
        if request.param == "transformers":
            return TransformersEngine(model, tokenizer, policy_version=0, prompts_per_batch=2)
        texts = {prompt.prompt_id: ["", "a b c", "abcdefgh", "d"] for prompt in encoded(5, 3, 9)}
        return ScriptedEngine(texts, tokenizer=tokenizer)

    return make


@pytest.fixture(params=["transformers", SERVER])
def model_engine_of(request):
    """Give a maker of engines that read a model."""
    if request.param == "vllm":
        return request.getfixturevalue("vllm_served").hold
    return lambda model, tokenizer: TransformersEngine(model, tokenizer, policy_version=0, prompts_per_batch=2)


def own_logprobs(model, prompt_ids, token_ids, temperature):
    """Return the model's log-probabilities of the tokens, one forward pass without a cache."""
    with torch.no_grad():
        logits = model(torch.tensor([[*prompt_ids, *token_ids]])).logits[0].float() / temperature
    rows = torch.log_softmax(logits, dim=-1)[len(prompt_ids) - 1 : -1]
    return rows.gather(-1, torch.tensor(token_ids)[:, None])[:, 0].numpy()


def test_groups_come_in_the_order_of_prompts(engine_of):
    """Rollouts of a prompt lie side by side in the order asked, with the very prompt ids and version sent."""
    prompts, told = encoded(5, 3, 9), []
    engine = engine_of(*tied_model())
    rollouts = engine.generate(prompts, PLAN, **KEY, progress=lambda done, total: told.append((done, total)))
    assert [p.prompt_id for p in prompts for _ in range(4)] == list(rollouts.prompt_id_N)
    assert [0, 1, 2, 3] * 3 == list(rollouts.sample_N)
    assert [p.token_ids for p in prompts for _ in range(4)] == list(rollouts.prompt_token_ids_N)
    assert engine.policy_version == rollouts.policy_version
    assert (12, 12) == told[-1]


def test_ends_are_told_apart(engine_of):
    """A completion that stopped ends with the end token; one that was cut has the cap's length and no end token."""
    model, tokenizer = tied_model(stop=11.0)
    rollouts = engine_of(model, tokenizer).generate(encoded(5, 3, 9), PLAN, **KEY)
    assert {"stop", "length"} == set(rollouts.finish_reason_N)
    for ids, reason, text in zip(rollouts.token_ids_N, rollouts.finish_reason_N, rollouts.completion_N, strict=True):
        assert (reason == "stop") == (ids[-1] == tokenizer.eos_token_id)
        assert tokenizer.eos_token_id not in ids[:-1]
        assert reason == "stop" or len(ids) == 6
        assert tokenizer.decode(ids, skip_special_tokens=True) == text


def test_empty_completions_are_the_end_token_alone(engine_of):
    """A policy that stops at once writes the end token, an empty text, and is counted as stopped."""
    model, tokenizer = tied_model(stop=60.0)
    rollouts = engine_of(model, tokenizer).generate(encoded(5), SamplingPlan(group_size=1, max_tokens=6), **KEY)
    assert ((tokenizer.eos_token_id,),) == rollouts.token_ids_N
    assert ("",) == rollouts.completion_N
    assert ("stop",) == rollouts.finish_reason_N


def test_same_key_same_rollouts_in_any_batch(engine_of):
    """The draws of a prompt depend on its key alone: not on the batch, the order, or what was sampled before."""
    engine = engine_of(*tied_model())
    whole = engine.generate(encoded(5, 3, 9), PLAN, **KEY)
    alone = engine.generate(encoded(5, 3, 9)[1:2], PLAN, **KEY)
    assert alone.token_ids_N == whole.token_ids_N[4:8]
    turned = engine.generate(encoded(5, 3, 9)[::-1], PLAN, **KEY)
    assert turned.token_ids_N[8:] == whole.token_ids_N[:4]


@pytest.mark.parametrize(
    ("prompts", "match"),
    [
        (encoded(5) * 2, "'prompt_id' must be distinct; got 'p0' twice"),
        ([EncodedPrompt(prompt_id="void", token_ids=())], "at least one token; got none .prompt 'void'"),
    ],
)
def test_unusable_prompts_are_refused(engine_of, prompts, match):
    """Two prompts of one id and a prompt without tokens are refused alike, whatever samples."""
    with pytest.raises(RolloutError, match=match):
        engine_of(*tied_model()).generate(prompts, PLAN, **KEY)


@pytest.mark.parametrize("temperature", [1.0, 0.5, 1.7])
def test_logprobs_are_the_policys_at_the_temperature(model_engine_of, temperature):
    """The logged value of each token is log-softmax of the logits over the temperature, to 1e-4."""
    model, tokenizer = tied_model()
    plan = SamplingPlan(group_size=3, temperature=temperature, max_tokens=5)
    rollouts = model_engine_of(model, tokenizer).generate(encoded(5, 140), plan, **KEY)
    for prompt, ids, logged in zip(
        rollouts.prompt_token_ids_N, rollouts.token_ids_N, rollouts.sampled_logprobs_N, strict=True
    ):
        np.testing.assert_allclose(logged, own_logprobs(model, prompt, ids, temperature), atol=1e-4)


def test_greedy_completions_are_the_most_likely_tokens(model_engine_of):
    """At temperature 0 every rollout of a group is the one greedy completion, logged at temperature 1."""
    model, tokenizer = tied_model()
    plan = SamplingPlan(group_size=2, temperature=0.0, max_tokens=5)
    rollouts = model_engine_of(model, tokenizer).generate(encoded(5), plan, **KEY)
    ids = []
    for _ in range(5):
        with torch.no_grad():
            ids.append(int(model(torch.tensor([[*encoded(5)[0].token_ids, *ids]])).logits[0, -1].argmax()))
    assert (tuple(ids), tuple(ids)) == rollouts.token_ids_N
    np.testing.assert_allclose(
        rollouts.sampled_logprobs_N[0], own_logprobs(model, encoded(5)[0].token_ids, ids, 1.0), atol=1e-4
    )


def test_rollouts_of_a_group_and_of_equal_prompts_differ(model_engine_of):
    """Each rollout has a seed of its own: groups are no copies, and neither are two prompts of the same tokens."""
    same = encoded(5)[0].token_ids
    prompts = [EncodedPrompt(prompt_id=name, token_ids=same) for name in ("a", "b")]
    plan = SamplingPlan(group_size=6, temperature=1.0, max_tokens=6)
    engine = model_engine_of(*tied_model())
    rollouts = engine.generate(prompts, plan, **KEY)
    assert 12 == len(set(rollouts.token_ids_N))
    other = engine.generate(prompts, plan, **{**KEY, "iteration": 2})
    assert not set(rollouts.token_ids_N) & set(other.token_ids_N)


def test_prompts_that_leave_no_room_are_refused(model_engine_of):
    """A prompt that with its completion is longer than the context is refused before anything is sampled."""
    with pytest.raises(RolloutError, match=r"must fit the model's context of \d+; got 1100 \+ 6 .prompt 'p0'"):
        model_engine_of(*tied_model()).generate(encoded(1100), PLAN, **KEY)


def test_engines_sample_one_law(model_engine_of):
    """Over many draws the first token comes as often as its probability says (chi-square below its 99.9th point)."""
    model, tokenizer = tied_model(seed=4)
    prompts = [EncodedPrompt(prompt_id=f"n{n}", token_ids=(5, 9, 11)) for n in range(8)]
    rollouts = model_engine_of(model, tokenizer).generate(prompts, SamplingPlan(group_size=256, max_tokens=1), **KEY)
    drawn = np.array([ids[0] for ids in rollouts.token_ids_N])
    with torch.no_grad():
        share_V = torch.softmax(model(torch.tensor([[5, 9, 11]])).logits[0, -1].double(), dim=-1).numpy()
    top = np.argsort(-share_V)[:19]
    expected = np.append(share_V[top], 1 - share_V[top].sum()) * len(drawn)
    seen = np.array([(drawn == token).sum() for token in top])
    seen = np.append(seen, len(drawn) - seen.sum())
    assert ((seen - expected) ** 2 / expected).sum() < 43.8  # of 19 degrees of freedom
