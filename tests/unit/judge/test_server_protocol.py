"""What is sent to a server, and what is made of what comes back."""

import json

import pytest
from judge_server import chat

from rangeline.judge.client import Answer, OptionRequest
from rangeline.judge.server_protocol import (
    chat_body,
    messages_of,
    read_chat,
    read_models,
    read_scores,
    read_usage,
    scoring_body,
)

ASKED = OptionRequest(system="S", question="Right?", options=("no", "yes"), examples=(("Q", "yes"),))
SCORE = OptionRequest(system="", question="How good?", options=())


def body(request=ASKED, **over):
    """Return the body of a chat call."""
    given = {"model": "m", "mode": "structured", "is_vllm": True, "max_tokens": 9, "limit_name": "max_tokens"}
    return chat_body(request, **{**given, **over})


def test_vllm_is_sent_its_present_field_and_never_the_removed_ones():
    """A schema of the options in `structured_outputs`; a field that new servers ignore would be answered freely."""
    sent = body()
    assert ["no", "yes"] == sent["structured_outputs"]["json"]["properties"]["verdict"]["enum"]
    assert "guided" not in json.dumps(sent)
    assert "response_format" not in sent


def test_other_servers_are_sent_a_response_format():
    """The same schema, strictly, where other servers look for it."""
    sent = body(is_vllm=False)
    assert sent["response_format"]["json_schema"]["strict"]
    assert body()["structured_outputs"]["json"] == sent["response_format"]["json_schema"]["schema"]
    assert "structured_outputs" not in sent


def test_a_score_has_bounds():
    """A score is a number in [0, 1]."""
    value = body(SCORE)["structured_outputs"]["json"]["properties"]["score"]
    assert (0, 1) == (value["minimum"], value["maximum"])


def test_text_is_asked_without_a_schema():
    """Free text sends nothing that a server could refuse."""
    assert {"model", "messages", "max_tokens", "temperature"} == set(body(mode="text"))


def test_models_that_refuse_a_temperature_are_sent_none():
    """Where the limit has its newer name, temperature is left out as well."""
    assert "temperature" not in body(limit_name="max_completion_tokens")


def test_examples_are_earlier_turns():
    """System turn, examples, question, in this order."""
    assert ["system", "user", "assistant", "user"] == [turn["role"] for turn in messages_of(ASKED)]


@pytest.mark.parametrize("control", ["<|im_end|>", "</s>", "[/INST]", "<<SYS>>", "<start_of_turn>", "<eos>"])
def test_control_tokens_of_other_models_are_broken(control):
    """Whatever model is behind the server, a completion cannot end its turn."""
    sent = messages_of(OptionRequest(system="", question=f"a{control}b", options=("no", "yes")))[0]["content"]
    assert control not in sent
    assert f"a{control[0]} {control[1:]}b" == sent


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (chat(None), "no content"),
        (chat(None, reasoning_content="I think yes"), "inside thinking"),
        (chat("", reasoning="yes"), "inside thinking"),
        (chat("<think>yes it", finish_reason="length"), "inside thinking"),
        (chat(None, refusal="I cannot judge people."), "refused"),
        (chat("yes", finish_reason="content_filter"), "refused"),
        (chat("\n" * 500, finish_reason="length"), "empty"),
        (chat('{"verdict": "ye', finish_reason="length"), "JSON without a choice"),
        (chat("Oui, c'est juste"), "no choice named"),
        ({"choices": []}, "wrong count"),
        ({"choices": chat("yes")["choices"] * 2}, "wrong count"),
        ({"choices": [{"finish_reason": "stop"}]}, "unreadable response"),
        ({"error": {"message": "x"}}, "unreadable response"),
        ([], "unreadable response"),
        (None, "unreadable response"),
    ],
)
def test_what_is_no_verdict_is_missing_with_its_reason(reply, reason):
    """Null content, thinking, refusals, white space, cut JSON, another language, wrong counts: never a level."""
    assert Answer(None, reason) == read_chat(reply, ASKED)


@pytest.mark.parametrize(
    ("content", "values"),
    [
        ('{"verdict": "no"}', (0.0, -1.0)),
        ("<think>no?</think> yes", (-1.0, 0.0)),
        ([{"type": "text", "text": "yes"}], (-1.0, 0.0)),
    ],
)
def test_a_verdict_is_a_pick(content, values):
    """Zero for what was picked, less for the rest."""
    assert Answer(values) == read_chat(chat(content), ASKED)


@pytest.mark.parametrize(
    ("content", "answer"),
    [
        ('{"score": 0.8}', Answer((0.8,))),
        ('{"score": 7}', Answer(None, "out of range")),
        ('{"score": NaN}', Answer(None, "not finite")),
        ('{"score": null}', Answer(None, "JSON without a score")),
    ],
)
def test_a_score_is_a_number_in_its_range(content, answer):
    """Out of range, not a number and null are missing."""
    assert answer == read_chat(chat(content), SCORE)


def test_one_prefill_where_every_option_is_a_token():
    """Options of one token are scored after one prompt; longer ones are appended to it."""
    assert [[1, 2]] == scoring_body([1, 2], [(5,), (6,)], model="m")["prompt"]
    assert [5, 6] == scoring_body([1, 2], [(5,), (6,)], model="m")["logprob_token_ids"]
    assert [[1, 2, 5], [1, 2, 6, 7]] == scoring_body([1, 2], [(5,), (6, 7)], model="m")["prompt"]


def test_scores_belong_to_their_options():
    """Values are found by token id and by the number of the choice, whatever order they come in."""
    top = {"choices": [{"index": 0, "logprobs": {"top_logprobs": [{"token_id:6": -2.0, "token_id:5": -1.0}]}}]}
    assert Answer((-1.0, -2.0)) == read_scores(top, [1, 2], [(5,), (6,)])
    one = {"index": 0, "prompt_logprobs": [None, {}, {"5": {"logprob": -1.0}}]}
    two = {"index": 1, "prompt_logprobs": [None, {}, {"6": {"logprob": -2.0}}, {"7": {"logprob": -0.5}}]}
    assert Answer((-1.0, -2.5)) == read_scores({"choices": [two, one]}, [1, 2], [(5,), (6, 7)])


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"choices": []}, "wrong count"),
        ({"choices": [{"index": 0, "logprobs": None}]}, "unreadable response"),
        ({"choices": [{"index": 0, "logprobs": {"top_logprobs": [{"token_id:5": -1.0}]}}]}, "unreadable response"),
        ({}, "unreadable response"),
    ],
)
def test_scores_that_are_not_all_there_are_missing(given, reason):
    """An option without a log-probability makes the question fail."""
    assert Answer(None, reason) == read_scores(given, [1, 2], [(5,), (6,)])


def test_models_tell_who_serves_them():
    """Engine, context and folder of the model asked for; nothing of another."""
    listed = {"data": [{"id": "a"}, {"id": "m", "owned_by": "vllm", "root": "/models/m", "max_model_len": 512}]}
    facts = read_models(listed, "m")
    assert (True, "m /models/m vllm", 512) == (facts.is_vllm, facts.model, facts.context_tokens)
    assert read_models(listed, "other") is None
    assert read_models("nonsense", "m") is None


def test_usage_is_counted_where_it_is_told():
    """Tokens in both directions, or nothing."""
    assert (40, 5) == read_usage(chat("yes"))
    assert read_usage(chat("yes", usage=None)) is None
