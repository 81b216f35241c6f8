"""A model behind an OpenAI-compatible server as judge: vLLM and others.

Asked by raw log-probabilities where the server gives them (vLLM), which nothing needs to parse; otherwise by output
bound to a schema; otherwise in free text, read by the tolerant parser. Which of them is settled once, when the judge is
opened, so that all rollouts are asked alike; it is part of the judge's digest.
A question that cannot fit the model's context is not sent, and one that the budget does not cover neither.
"""

import asyncio
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from rangeline.errors import JudgeError
from rangeline.judge.budget import Budget, Price, Purse
from rangeline.judge.client import OVER_BUDGET, TOO_LONG, Answer, Gives, OptionRequest, wait_for
from rangeline.judge.http_calls import Caller, Failed, Manners
from rangeline.judge.server_protocol import (
    Mode,
    ServerFacts,
    chat_body,
    messages_of,
    read_chat,
    read_models,
    read_scores,
    read_usage,
    scoring_body,
)

_PROBE = OptionRequest(system="", question="Is two greater than one? Reply yes or no.", options=("no", "yes"))
_LETTERS_A_TOKEN = 4
"""Fewer letters a token than this is unusual; it guesses a length, and is never trusted where the server counts."""
_TURN_TOKENS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Which server, which model, and how they are called."""

    url: str
    """Base address, such as http://127.0.0.1:8000/v1."""
    model: str
    key: str | None = field(default=None, repr=False)
    ask: Mode | None = None
    """None takes the best that the server gives."""
    max_tokens: int = 64
    """Of a written reply."""
    context_tokens: int | None = None
    """Of the model; None believes the server."""
    manners: Manners = field(default_factory=Manners)
    budget: Budget = field(default_factory=Budget)
    price: Price = field(default_factory=Price)
    store: Path | None = None
    """File of verdicts that also keeps what was spent."""


@dataclass(frozen=True, slots=True)
class _Way:
    """How the server is asked."""

    facts: ServerFacts
    mode: Mode
    limit_name: str = "max_tokens"


class ServerJudge:
    """A judge behind a server.

    Parameters
    ----------
    settings
        Which server, and how it is called.

    Raises
    ------
    JudgeError
        If the server cannot be reached, refuses the client, does not serve the model, or cannot be asked as wanted.
    """

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self._options: dict[str, tuple[int, ...]] = {}
        self._purse = Purse(settings.budget, settings.price, settings.store, settings.model)
        self._way = wait_for(self._open())
        self.mode: Mode = self._way.mode
        self.gives: Gives = "logprobs" if self.mode == "logprobs" else "picks"
        identity = json.dumps(["server-1", self._way.facts.model, self.mode, settings.max_tokens])
        self.digest = hashlib.sha256(identity.encode()).hexdigest()

    @property
    def purse(self) -> Purse:
        """What asking has cost."""
        return self._purse

    async def ask(self, requests: Sequence[OptionRequest]) -> list[Answer]:
        """Return one answer a request; those that no call brought back have their reason."""
        async with self._http() as http:
            caller = self._caller(http)
            try:
                async with asyncio.TaskGroup() as group:
                    tasks = [group.create_task(self._one(caller, self._way, item)) for item in requests]
            except* JudgeError as errors:
                raise errors.exceptions[0] from None
            finally:
                self._purse.save()
        return [task.result() for task in tasks]

    def _http(self) -> httpx.AsyncClient:
        # A proxy of the environment is for the network; this machine's own servers are not behind it.
        is_local = httpx.URL(self._settings.url).host in ("127.0.0.1", "localhost", "::1")
        return httpx.AsyncClient(timeout=self._settings.manners.timeout_s, trust_env=not is_local)

    def _caller(self, http: httpx.AsyncClient) -> Caller:
        return Caller(http, self._settings.manners, self._settings.key)

    def _url(self, path: str) -> str:
        return f"{self._settings.url.rstrip('/')}/{path}"

    @property
    def _root(self) -> str:
        return self._settings.url.rstrip("/").removesuffix("/v1")

    async def _open(self) -> _Way:
        async with self._http() as http:
            caller, settings = self._caller(http), self._settings
            body = await caller.call("GET", self._url("models"))
            if isinstance(body, Failed):
                msg = (
                    f"'judge.url' must be a server that answers; got '{body.reason}' ({self._url('models')}). "
                    "Start the server, or correct the address."
                )
                raise JudgeError(msg)
            facts = read_models(body, settings.model)
            if facts is None:
                names = [str(entry.get("id")) for entry in body.get("data", ())][:8] if isinstance(body, dict) else []
                msg = f"'judge.model' must be served; got '{settings.model}', the server has {names}. Correct it."
                raise JudgeError(msg)
            if settings.context_tokens is not None:
                facts = ServerFacts(facts.is_vllm, facts.model, settings.context_tokens)
            return await self._settle(caller, facts)

    async def _settle(self, caller: Caller, facts: ServerFacts) -> _Way:
        """Try the ways of asking, the best first, on a question that costs next to nothing."""
        modes: tuple[Mode, ...] = ("logprobs", "structured", "text") if facts.is_vllm else ("structured", "text")
        if self._settings.ask is not None:
            modes = (self._settings.ask,)
        reason = ""
        for mode in modes:
            for limit_name in ("max_tokens", "max_completion_tokens") if mode != "logprobs" else ("max_tokens",):
                way = _Way(facts, mode, limit_name)
                answer = await self._one(caller, way, _PROBE)
                self._purse.save()
                refused = answer.values is None and answer.reason.startswith(("refused by the server", "unreadable"))
                if mode == "logprobs" and answer.values is None:
                    refused = True
                if answer.reason == OVER_BUDGET or not refused:
                    return way
                reason = answer.reason
                if "max_completion_tokens" not in reason:
                    break
        msg = (
            f"'judge.ask' must be a way that the server takes; got '{reason}' for {list(modes)} "
            f"({self._settings.url}). Set judge.ask to another, or judge.url to another server."
        )
        raise JudgeError(msg)

    async def _one(self, caller: Caller, way: _Way, request: OptionRequest) -> Answer:
        if way.mode == "logprobs":
            return await self._score(caller, way, request)
        settings = self._settings
        letters = sum(len(message["content"].encode()) for message in messages_of(request))
        guess = letters // _LETTERS_A_TOKEN + _TURN_TOKENS
        limit = way.facts.context_tokens
        if limit is not None and guess + settings.max_tokens > limit and await self._is_too_long(caller, way, request):
            return Answer(None, TOO_LONG)
        reserved = self._purse.reserve(max(guess, letters // 2), settings.max_tokens)
        if reserved is None:
            return Answer(None, OVER_BUDGET)
        body = chat_body(
            request,
            model=settings.model,
            mode=way.mode,
            is_vllm=way.facts.is_vllm,
            max_tokens=settings.max_tokens,
            limit_name=way.limit_name,
        )
        found = await caller.call("POST", self._url("chat/completions"), body)
        self._purse.settle(reserved, _used(found))
        return Answer(None, found.reason) if isinstance(found, Failed) else read_chat(found, request)

    async def _is_too_long(self, caller: Caller, way: _Way, request: OptionRequest) -> bool:
        """Count where the server counts; elsewhere believe the guess."""
        tokens = await self._tokens(caller, {"messages": messages_of(request)}) if way.facts.is_vllm else None
        limit = way.facts.context_tokens or 0
        return tokens is None or len(tokens) + self._settings.max_tokens > limit

    async def _score(self, caller: Caller, way: _Way, request: OptionRequest) -> Answer:
        if not request.options:
            return Answer(None, "a score has no options")
        prompt = await self._tokens(caller, {"messages": messages_of(request), "add_generation_prompt": True})
        options = [await self._option(caller, option) for option in request.options]
        if prompt is None or not all(options):
            return Answer(None, "not tokenized")
        longest, limit = max(map(len, options)), way.facts.context_tokens
        if limit is not None and len(prompt) + longest + 1 > limit:
            return Answer(None, TOO_LONG)
        body = scoring_body(prompt, options, model=self._settings.model)
        num_read = sum(len(ids) for ids in body["prompt"])
        reserved = self._purse.reserve(num_read, len(body["prompt"]))
        if reserved is None:
            return Answer(None, OVER_BUDGET)
        found = await caller.call("POST", self._url("completions"), body)
        self._purse.settle(reserved, _used(found))
        return Answer(None, found.reason) if isinstance(found, Failed) else read_scores(found, prompt, options)

    async def _option(self, caller: Caller, option: str) -> tuple[int, ...]:
        if option not in self._options:
            tokens = await self._tokens(caller, {"prompt": option, "add_special_tokens": False})
            if tokens is None:
                return ()
            self._options[option] = tokens
        return self._options[option]

    async def _tokens(self, caller: Caller, body: dict[str, Any]) -> tuple[int, ...] | None:
        """Return the ids that the server itself would read; None where it does not say."""
        found = await caller.call(
            "POST", f"{self._root}/tokenize", {"model": self._settings.model, **body}, optional=True
        )
        tokens = found.get("tokens") if isinstance(found, dict) else None
        return tuple(tokens) if isinstance(tokens, list) and all(isinstance(item, int) for item in tokens) else None


def _used(found: Any) -> tuple[int, int] | None:
    """Return the tokens of a call; None, which pays what was put aside, where nobody can say."""
    if isinstance(found, Failed):
        return None if found.was_heard else (0, 0)
    return read_usage(found)
