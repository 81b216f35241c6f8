"""What every judge promises, whatever stands behind it: questions in, one answer each out, a failure with its reason.

An answer to a question with options is one value an option: log-probabilities from a judge that is scored, or from a
judge that writes, 0 for its pick and -1 for the others. An answer to a question without options is one score in [0, 1].
A failed question has no values, and a reason; it is never a value.
"""

import asyncio
import hashlib
import json
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar

Result = TypeVar("Result")

Gives = Literal["logprobs", "picks"]
"""Whether a judge says how likely each reply is, or only which one it gives."""

OVER_BUDGET = "over budget"
"""Reason of a question that was not sent, because the budget does not cover it."""
TOO_LONG = "too long for the judge"
"""Reason of a question that was not sent, or was refused, because of its length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionRequest:
    """A question, and the replies to choose from; without any, a score in [0, 1] is asked."""

    system: str
    question: str
    options: tuple[str, ...]
    examples: tuple[tuple[str, str], ...] = ()
    """Earlier questions with the right replies."""

    def key(self, judge_digest: str) -> str:
        """Return the sha256 of all that determines the verdict, given the digest of the judge."""
        content: list[Any] = [judge_digest, self.system, self.question, self.options]
        if self.examples:
            content.append(self.examples)
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Answer:
    """What a judge answered to one question."""

    values: tuple[float, ...] | None
    """One an option, or one score; None where the judge failed."""
    reason: str = ""
    """Why there are none."""


class JudgeClient(Protocol):
    """A judge: answers questions."""

    digest: str
    """Identity of the judge and of how it is asked; equal digests give equal verdicts."""
    gives: Gives

    async def ask(self, requests: Sequence[OptionRequest]) -> list[Answer]:
        """Return one answer a request, in order."""
        ...


class ScriptedJudge:
    """A judge that answers by a given function: for tests, demonstrations and dry runs.

    Parameters
    ----------
    reply
        Log-probabilities of a request's options.
    digest
        Identity it claims.
    """

    gives: Gives = "logprobs"

    def __init__(self, reply: Callable[[OptionRequest], Sequence[float]], *, digest: str = "scripted") -> None:
        self.digest = digest
        self.asked: list[OptionRequest] = []
        """Every request it was given, in order."""
        self._reply = reply

    async def ask(self, requests: Sequence[OptionRequest]) -> list[Answer]:
        """Return the function's answers; one that holds no finite number has failed."""
        self.asked.extend(requests)
        return [Answer(tuple(self._reply(request))) for request in requests]


def pick(request: OptionRequest, choice: str) -> Answer:
    """Return the answer of a judge that only says which reply it gives.

    Examples
    --------
    >>> pick(OptionRequest(system="", question="?", options=("no", "yes")), "yes").values
    (-1.0, 0.0)
    """
    return Answer(tuple(0.0 if option == choice else -1.0 for option in request.options))


def wait_for(work: Coroutine[Any, Any, Result]) -> Result:
    """Run asynchronous work to its end, also where a notebook or a flow already runs an event loop in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="judge") as pool:
        return pool.submit(asyncio.run, work).result()
