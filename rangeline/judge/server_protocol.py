"""The OpenAI API as judges are asked through it: what is sent, and what is made of what comes back.

Structured output is asked for by a JSON schema: `structured_outputs` of vLLM, `response_format` of other servers. The
older `guided_*` fields are never sent, since servers ignore fields that they do not know and answer freely.
A reply that is absent, refused, one of several, or not in the API's form is a failure with its reason.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rangeline.judge.client import Answer, OptionRequest, pick
from rangeline.judge.reply_parser import parse_choice, parse_score

Mode = Literal["logprobs", "structured", "text"]
"""How a server is asked: its raw log-probabilities of the replies, output bound by a schema, or free text."""

_CONTROL = re.compile(
    r"<\|[^|<>\n]{1,60}\|>|</?s>|\[/?INST\]|<</?SYS>>|<(?:start|end)_of_turn>|<(?:bos|eos|pad|unk)>", re.IGNORECASE
)
WRONG_COUNT = "wrong count"
UNREADABLE = "unreadable response"


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What a server says of itself and of the model that it serves."""

    is_vllm: bool
    model: str
    """Name, and where told the folder or revision behind it: part of the judge's digest."""
    context_tokens: int | None


def read_models(body: Any, model: str) -> ServerFacts | None:
    """Return the facts of a model from the list that a server gives; None where it is not among them."""
    entries = body.get("data") if isinstance(body, dict) else None
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and entry.get("id") == model:
            length = entry.get("max_model_len")
            identity = " ".join(str(entry[name]) for name in ("id", "root", "owned_by") if entry.get(name))
            return ServerFacts(entry.get("owned_by") == "vllm", identity, length if isinstance(length, int) else None)
    return None


def messages_of(request: OptionRequest) -> list[dict[str, str]]:
    """Return a request as chat messages, with what could be a model's control token broken by a space."""
    turns = [("system", request.system)] if request.system else []
    for question, reply in request.examples:
        turns += [("user", question), ("assistant", reply)]
    turns.append(("user", request.question))
    return [{"role": role, "content": _CONTROL.sub(_broken, text)} for role, text in turns]


def _broken(match: re.Match[str]) -> str:
    return f"{match.group()[0]} {match.group()[1:]}"


def schema_of(request: OptionRequest) -> dict[str, Any]:
    """Return the JSON schema of a reply: a verdict among the options, or a score in [0, 1]."""
    name, value = (
        ("verdict", {"type": "string", "enum": list(request.options)})
        if request.options
        else (
            "score",
            {"type": "number", "minimum": 0, "maximum": 1},
        )
    )
    return {"type": "object", "properties": {name: value}, "required": [name], "additionalProperties": False}


def chat_body(
    request: OptionRequest, *, model: str, mode: Mode, is_vllm: bool, max_tokens: int, limit_name: str
) -> dict[str, Any]:
    """Return the body of a chat completion."""
    body: dict[str, Any] = {"model": model, "messages": messages_of(request), limit_name: max_tokens}
    if limit_name == "max_tokens":
        body["temperature"] = 0.0
    if mode == "structured" and is_vllm:
        body["structured_outputs"] = {"json": schema_of(request)}
    elif mode == "structured":
        body["response_format"] = {
            "type": "json_schema",
            "json_schema": {"name": "verdict", "strict": True, "schema": schema_of(request)},
        }
    return body


def read_chat(body: Any, request: OptionRequest) -> Answer:
    """Return what a chat completion says."""
    choices = body.get("choices") if isinstance(body, dict) else None
    if not isinstance(choices, list):
        return Answer(None, UNREADABLE)
    if len(choices) != 1:
        return Answer(None, WRONG_COUNT)
    choice = choices[0]
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(message, dict):
        return Answer(None, UNREADABLE)
    if message.get("refusal") or choice.get("finish_reason") == "content_filter":
        return Answer(None, "refused")
    content = _text(message.get("content"))
    if not content and (message.get("reasoning_content") or message.get("reasoning")):
        return Answer(None, "inside thinking")
    return answer_of(content, request, truncated=choice.get("finish_reason") == "length")


def answer_of(content: str | None, request: OptionRequest, *, truncated: bool) -> Answer:
    """Return what a written reply says."""
    if not request.options:
        score = parse_score(content, truncated=truncated)
        return Answer(None, score.reason) if score.score is None else Answer((score.score,))
    choice = parse_choice(content, request.options, truncated=truncated)
    return Answer(None, choice.reason) if choice.choice is None else pick(request, choice.choice)


def _text(content: Any) -> str | None:
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text"]
        return "".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else None


def read_usage(body: Any) -> tuple[int, int] | None:
    """Return prompt and reply tokens that a server counted; None where it does not say."""
    usage = body.get("usage") if isinstance(body, dict) else None
    if not isinstance(usage, dict):
        return None
    counts = [usage.get(name, 0) for name in ("prompt_tokens", "completion_tokens")]
    return (counts[0], counts[1]) if all(isinstance(count, int) for count in counts) else None


def scoring_body(prompt: Sequence[int], options: Sequence[Sequence[int]], *, model: str) -> dict[str, Any]:
    """Return the body that asks vLLM for raw log-probabilities of options after a prompt, by token ids.

    One prefill where every option is one token; otherwise each option is appended to the prompt and scored there.
    """
    body: dict[str, Any] = {"model": model, "max_tokens": 1, "temperature": 0.0}
    if all(len(option) == 1 for option in options):
        return body | {
            "prompt": [list(prompt)],
            "logprobs": len(options),
            "logprob_token_ids": [option[0] for option in options],
            "return_tokens_as_token_ids": True,
        }
    return body | {"prompt": [[*prompt, *option] for option in options], "prompt_logprobs": 0}


def read_scores(body: Any, prompt: Sequence[int], options: Sequence[Sequence[int]]) -> Answer:
    """Return the log-probability of each option, summed over its tokens."""
    try:
        choices = sorted(body["choices"], key=lambda choice: choice["index"])
        if all(len(option) == 1 for option in options):
            if len(choices) != 1:
                return Answer(None, WRONG_COUNT)
            top = choices[0]["logprobs"]["top_logprobs"][0]
            return Answer(tuple(float(top[f"token_id:{option[0]}"]) for option in options))
        if len(choices) != len(options):
            return Answer(None, WRONG_COUNT)
        values = []
        for choice, option in zip(choices, options, strict=True):
            entries = choice["prompt_logprobs"][len(prompt) :]
            if len(entries) != len(option):
                return Answer(None, WRONG_COUNT)
            pairs = zip(entries, option, strict=True)
            values.append(sum(float(entry[str(token)]["logprob"]) for entry, token in pairs))
        return Answer(tuple(values))
    except (KeyError, IndexError, TypeError, ValueError):
        return Answer(None, UNREADABLE)
