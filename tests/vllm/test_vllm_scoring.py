"""Laws of scoring through a real server: values are the in-process model's, to 1e-4."""

import numpy as np
import pytest
from served import encoded, tied_model

from rangeline.errors import RolloutError
from rangeline.judge.option_scorer import ChoiceJudge, OptionRequest
from rangeline.rollout.pretrained import Pretrained
from rangeline.rollout.suffix_logprobs import SuffixRow, suffix_logprobs
from rangeline.rollout.vllm_scoring import next_token_logprobs, server_option_logprobs, server_suffix_logprobs

pytestmark = [pytest.mark.slow, pytest.mark.vllm]


def test_references_score_as_in_process(vllm_served):
    """Log-probabilities of given answers are the transformers model's, in whatever order, long prompts too."""
    model, tokenizer = tied_model(seed=3)
    vllm_served.hold(model, tokenizer)
    rows = [
        SuffixRow(prompt_ids=prompt.token_ids, suffix_ids=(3, 40 + k, 7), num_scored=2)
        for prompt in encoded(5, 290, 9)
        for k in range(2)
    ]
    expected = suffix_logprobs(model, rows)
    for order in (rows, rows[::-1]):
        actual = server_suffix_logprobs(vllm_served.client, order)
        for value, row in zip(actual, order, strict=True):
            np.testing.assert_allclose(value, expected[rows.index(row)], atol=1e-4)


def test_texts_without_room_are_none(vllm_served):
    """A text as long as the server's context is not scored, and says so by None."""
    rows = [SuffixRow(prompt_ids=tuple([5] * 767), suffix_ids=(3,), num_scored=1)]
    assert [None] == server_suffix_logprobs(vllm_served.client, rows)


def test_choices_score_as_the_in_process_judge(vllm_served):
    """Replies of one token and of several have the log-probabilities of the judge in this process."""
    model, tokenizer = tied_model(seed=3)
    vllm_served.hold(model, tokenizer)
    requests = [
        OptionRequest(system="be brief", question=text, options=("y", "n", "not sure", "0"))
        for text in ("is it so?", "or is it otherwise, all in all?")
    ]
    judge = ChoiceJudge(Pretrained(model=model, tokenizer=tokenizer, digest="d", name="n"))
    encoded_rows = [judge._encode(request) for request in requests]
    actual = server_option_logprobs(
        vllm_served.client, [question for question, _ in encoded_rows], [options for _, options in encoded_rows]
    )
    np.testing.assert_allclose(actual, judge.score(requests), atol=1e-4)


def test_more_next_tokens_than_are_listed_are_refused(vllm_served):
    """The server lists 20 values a position: a longer list is refused here, not cut short there."""
    with pytest.raises(RolloutError, match="must be 1 to 19 tokens; got 20"):
        next_token_logprobs(vllm_served.client, [5, 6], list(range(20)))


def test_options_without_tokens_are_refused(vllm_served):
    """A reply of no tokens has no probability."""
    with pytest.raises(RolloutError, match="'options' must have at least one token each"):
        server_option_logprobs(vllm_served.client, [[5]], [[[3], []]])
