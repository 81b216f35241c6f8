"""The scripted engine and the shape of a rollout set."""

import pytest

from rangeline.errors import RolloutError
from rangeline.records import SamplingPlan
from rangeline.rollout.engine import EncodedPrompt, ScriptedEngine

KEY = {"run_seed": 0, "iteration": 0, "purpose": "rollout"}


def prompts(*names):
    """Return prompts of given ids."""
    return [EncodedPrompt(prompt_id=name, token_ids=(1, 2)) for name in names]


def test_scripted_texts_come_in_turn():
    """Groups lie side by side in the order of the prompts, and a short script begins again."""
    engine = ScriptedEngine({"a": ["1", "22"], "b": ["x"]}, policy_version=4)
    seen = []
    rollouts = engine.generate(
        prompts("b", "a"), SamplingPlan(group_size=3), progress=lambda done, total: seen.append((done, total)), **KEY
    )
    assert ("b", "b", "b", "a", "a", "a") == rollouts.prompt_id_N
    assert (0, 1, 2, 0, 1, 2) == rollouts.sample_N
    assert ("x", "x", "x", "1", "22", "1") == rollouts.completion_N
    assert (50, 50) == rollouts.token_ids_N[4]
    assert ((0.0, 0.0), "stop", 4) == (
        rollouts.sampled_logprobs_N[4],
        rollouts.finish_reason_N[4],
        rollouts.policy_version,
    )
    assert [(3, 6), (6, 6)] == seen


def test_long_texts_are_cut():
    """A text above the cap ends by length and keeps only what was written."""
    rollouts = ScriptedEngine({"a": ["12345"]}).generate(prompts("a"), SamplingPlan(group_size=1, max_tokens=3), **KEY)
    assert ("123", "length") == (rollouts.completion_N[0], rollouts.finish_reason_N[0])


def test_unscripted_prompts_are_refused():
    """A prompt without a text is an error that names it."""
    with pytest.raises(RolloutError, match="got none \\(prompt 'z'\\)"):
        ScriptedEngine({"a": ["1"]}).generate(prompts("z"), SamplingPlan(group_size=1), **KEY)


def test_repeated_ids_are_refused():
    """Two prompts of one id would share a stream and a group."""
    with pytest.raises(RolloutError, match="'prompt_id' must be distinct; got 'a' twice"):
        ScriptedEngine({"a": ["1"]}).generate(prompts("a", "a"), SamplingPlan(group_size=1), **KEY)


def test_empty_prompts_are_refused():
    """A prompt of no tokens cannot be continued."""
    with pytest.raises(RolloutError, match="'token_ids' must hold at least one token"):
        ScriptedEngine({"a": ["1"]}).generate(
            [EncodedPrompt(prompt_id="a", token_ids=())], SamplingPlan(group_size=1), **KEY
        )
