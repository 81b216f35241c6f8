"""Log-probabilities of given tokens from a vLLM server, as the in-process model gives them.

Computes log p(token_t | tokens_<t) at temperature 1 for the last tokens of texts, and of whole replies to a question.
The formula is log-softmax of the language-model head's logits taken at the token; a reply's is the sum over its tokens.
Nothing is divided. Replies of one token are read off one prefill of their question; longer ones are scored as texts.
No grammar is ever sent: under one, vLLM's log-probabilities are those of the masked distribution.

Shapes: R rows, X scored tokens of a row.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import numpy as np

from rangeline.errors import RolloutError
from rangeline.records import FloatArray
from rangeline.rollout.suffix_logprobs import SuffixRow
from rangeline.rollout.vllm_client import VllmClient

_THREADS = 32
_MAX_LISTED = 19
"""vLLM lists 20 log-probabilities a position by default (--max-logprobs), the sampled token's among them."""
Item = TypeVar("Item")
Value = TypeVar("Value")


def server_suffix_logprobs(client: VllmClient, rows: Sequence[SuffixRow]) -> list[FloatArray | None]:
    """Return the log-probability of each scored token of each row; the server's `suffix_logprobs`.

    Parameters
    ----------
    client
        The server.
    rows
        What to score; equal rows are scored once.

    Returns
    -------
    list
        float64 of shape (num_scored,) a row; None where the row is longer than the server's context.

    Raises
    ------
    RolloutError
        When the server fails.
    """
    # The reply to a scored prompt holds one token more.
    fitting = sorted({_key(row) for row in rows if row.length < client.max_model_len})
    values = dict(zip(fitting, _each(partial(_score_text, client), fitting), strict=True))
    return [values.get(_key(row)) for row in rows]


def server_option_logprobs(
    client: VllmClient, questions: Sequence[Sequence[int]], options: Sequence[Sequence[Sequence[int]]]
) -> list[tuple[float, ...]]:
    """Return the summed log-probability of each option's tokens after its question.

    Parameters
    ----------
    client
        The server.
    questions
        Token ids of each question, up to where the reply begins.
    options
        Token ids of each question's options.

    Returns
    -------
    list
        One value an option; NaN for a question that with its options is longer than the server's context.

    Raises
    ------
    RolloutError
        When the server fails, or an option has no tokens.
    """
    rows = [(tuple(question), tuple(map(tuple, group))) for question, group in zip(questions, options, strict=True)]
    for _, group in rows:
        if not all(group):
            msg = f"'options' must have at least one token each; got {group}. Correct the rubric."
            raise RolloutError(msg)
    room = client.max_model_len
    fitting = sorted({row for row in rows if len(row[0]) + max(map(len, row[1])) < room})
    values = dict(zip(fitting, _each(partial(_score_options, client), fitting), strict=True))
    return [values.get(row, (float("nan"),) * len(row[1])) for row in rows]


def next_token_logprobs(client: VllmClient, prompt: Sequence[int], token_ids: Sequence[int]) -> FloatArray:
    """Return the log-probabilities of given next tokens; what the server remembers of the prompt is used.

    Parameters
    ----------
    client
        The server.
    prompt
        Token ids read before.
    token_ids
        At most 19 tokens.

    Raises
    ------
    RolloutError
        When the server fails, or leaves one of them out.
    """
    count = len(token_ids)
    if not 1 <= count <= _MAX_LISTED:
        msg = f"'token_ids' must be 1 to {_MAX_LISTED} tokens; got {count}. Ask in parts."
        raise RolloutError(msg)
    # The sampled token comes first in the list and pushes the last one out: the last is asked for twice.
    asked = [*token_ids, token_ids[-1]]
    sampling = {"temperature": 1.0, "max_tokens": 1, "logprobs": len(asked), "logprob_token_ids": asked}
    reply = client.generate(prompt, where="next token", **sampling)
    listed = reply["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
    found = {int(item["token_id"]): float(item["logprob"]) for item in listed}
    if absent := [token for token in token_ids if token not in found]:
        msg = f"The server must give the log-probability of every token asked for; got none of {absent}."
        raise RolloutError(msg)
    return np.array([found[token] for token in token_ids])


def prompt_logprobs(client: VllmClient, token_ids: Sequence[int], *, where: str = "score") -> FloatArray:
    """Return the log-probability of every token but the first; the server reads the text anew.

    Raises
    ------
    RolloutError
        When the server fails.
    """
    reply = client.generate(token_ids, where=where, temperature=1.0, max_tokens=1, prompt_logprobs=0)
    listed: list[dict[str, Any]] = reply["prompt_logprobs"][1:]
    return np.array([float(item[str(token)]["logprob"]) for item, token in zip(listed, token_ids[1:], strict=True)])


def _key(row: SuffixRow) -> tuple[tuple[int, ...], int]:
    return (*row.prompt_ids, *row.suffix_ids), row.num_scored


def _score_text(client: VllmClient, key: tuple[tuple[int, ...], int]) -> FloatArray:
    ids, count = key
    return prompt_logprobs(client, ids, where=f"text of {len(ids)} tokens")[-count:]


def _score_options(client: VllmClient, row: tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]) -> tuple[float, ...]:
    question, options = row
    single = sorted({option[0] for option in options if len(option) == 1})
    short: dict[int, float] = {}
    for start in range(0, len(single), _MAX_LISTED):
        part = single[start : start + _MAX_LISTED]
        short.update(zip(part, next_token_logprobs(client, question, part).tolist(), strict=True))
    return tuple(
        short[option[0]]
        if len(option) == 1
        else float(prompt_logprobs(client, question + option)[-len(option) :].sum())
        for option in options
    )


def _each(work: Callable[[Item], Value], items: Sequence[Item]) -> list[Value]:
    with ThreadPoolExecutor(max_workers=min(_THREADS, max(len(items), 1))) as pool:
        return list(pool.map(work, items))
