"""Call a server politely: few calls at once, a limit on the whole of each, and retries that do not come in step.

Tried again: no connection, no reply in time, 408, 409, 425, 429 and 5xx. The wait is what `Retry-After` says, within a
limit; otherwise uniform on [0, base * 2^n], so that many clients spread. Not tried again: a refusal of the question
itself, which fails that question; a refusal of the client (401, 403, 404, no quota), which is an error for a person.
The key is in a header alone: it is in no message, log or digest, and is cut out of whatever the server echoes.
"""

import asyncio
import email.utils
import random
import time
from dataclasses import dataclass, field
from typing import Any

import httpx

from rangeline.errors import JudgeError
from rangeline.judge.client import TOO_LONG

_AGAIN = frozenset({408, 409, 425, 429})
_OF_CLIENT = frozenset({401, 403, 404})
_LENGTH_WORDS = ("context length", "context_length", "maximum context", "max_model_len", "too long", "too many tokens")
_MESSAGE_LENGTH = 160


@dataclass(frozen=True, slots=True, kw_only=True)
class Manners:
    """How a server is called."""

    concurrency: int = 8
    timeout_s: float = 60.0
    """Of one call from its first byte to its last: a server that drips its reply is timed out as well."""
    attempts: int = 4
    base_s: float = 0.5
    """First retry waits up to this, each later one up to twice as long."""
    max_wait_s: float = 60.0
    """Longest wait before a retry, whatever `Retry-After` says."""


@dataclass(frozen=True, slots=True)
class Failed:
    """A call that brought nothing."""

    reason: str
    was_heard: bool = False
    """True where the server may have worked on the question, and will ask for its price."""


@dataclass(slots=True)
class Caller:
    """Calls one server; to be used inside one event loop."""

    http: httpx.AsyncClient
    manners: Manners
    key: str | None = field(default=None, repr=False)
    _slots: asyncio.Semaphore = field(init=False, repr=False)
    _jitter: random.Random = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Make room for calls at once."""
        self._slots = asyncio.Semaphore(self.manners.concurrency)
        self._jitter = random.SystemRandom()

    async def call(self, method: str, url: str, body: dict[str, Any] | None = None, *, optional: bool = False) -> Any:
        """Return the JSON that a server replies, or `Failed` after the last attempt; what is optional may not be there.

        Raises
        ------
        JudgeError
            If the server refuses the client: key, path, model or quota.
        """
        outcome: Any = Failed("unreachable")
        for attempt in range(self.manners.attempts):
            async with self._slots:
                outcome, wait_s = await self._once(method, url, body, optional=optional)
            if wait_s is None:
                break
            if attempt + 1 < self.manners.attempts:
                await asyncio.sleep(self._wait(attempt, wait_s))
        return outcome

    async def _once(
        self, method: str, url: str, body: dict[str, Any] | None, *, optional: bool
    ) -> tuple[Any, float | None]:
        """Return what came, and how long the server wants to be left alone; None is the end of it."""
        headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        try:
            async with asyncio.timeout(self.manners.timeout_s):
                response = await self.http.request(method, url, json=body, headers=headers)
        except (TimeoutError, httpx.TimeoutException):
            return Failed("timed out", was_heard=True), 0.0
        except httpx.TransportError:
            return Failed("unreachable"), 0.0
        except httpx.RequestError:  # a body that is not packed as its header says, or redirections without end
            return Failed("unreadable response", was_heard=True), 0.0
        if response.is_success:
            try:
                return response.json(), None
            except ValueError:
                return Failed("unreadable response", was_heard=True), 0.0
        if optional and response.status_code == 404:
            return Failed("not offered"), None
        return self._refused(response, url)

    def _refused(self, response: httpx.Response, url: str) -> tuple[Failed, float | None]:
        status, message = response.status_code, self._message(response)
        if status in _OF_CLIENT or "insufficient_quota" in response.text:
            msg = (
                f"'judge' must be let in by its server; got {status} '{message}' ({url}). Check judge.url, "
                "judge.model and the key in the environment variable that judge.api_key_env names."
            )
            raise JudgeError(msg)
        if status in _AGAIN or status >= 500:
            reason = "rate limited" if status == 429 else f"server error {status}"
            sent = _moment(response.headers.get("Date"))
            wait_s = retry_after(response.headers.get("Retry-After"), time.time() if sent is None else sent)
            return Failed(reason), wait_s
        if any(word in response.text.lower() for word in _LENGTH_WORDS):
            return Failed(TOO_LONG), None
        return Failed(f"refused by the server ({status}: {message})"), None

    def _message(self, response: httpx.Response) -> str:
        try:
            found = response.json()
            found = found.get("error", found) if isinstance(found, dict) else found
            text = str(found.get("message", found) if isinstance(found, dict) else found)
        except ValueError:
            text = response.text
        text = text.replace(self.key, "***") if self.key else text
        return " ".join(text.split())[:_MESSAGE_LENGTH]

    def _wait(self, attempt: int, wanted_s: float) -> float:
        own = self._jitter.uniform(0.0, self.manners.base_s * 2.0**attempt)
        return min(max(own, wanted_s), self.manners.max_wait_s)


def retry_after(header: str | None, sent: float) -> float:
    """Return the seconds that a `Retry-After` header asks for: a number, or a date; 0 where it says nothing.

    Parameters
    ----------
    header
        As it came; None where there was none.
    sent
        When the reply was sent, in seconds of the epoch, by the clock that made the date: the server's own.

    Examples
    --------
    >>> retry_after("3", 0.0), retry_after("Thu, 01 Jan 1970 00:00:07 GMT", 2.0), retry_after("soon", 0.0)
    (3.0, 5.0, 0.0)
    """
    if header is None:
        return 0.0
    try:
        return max(float(header), 0.0)
    except ValueError:
        until = _moment(header)
    return 0.0 if until is None else max(until - sent, 0.0)


def _moment(header: str | None) -> float | None:
    """Return the seconds of the epoch that a date of HTTP names; None where it names none."""
    try:
        return None if header is None else email.utils.parsedate_to_datetime(header).timestamp()
    except ValueError:
        return None
