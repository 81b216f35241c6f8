"""Give a sampling server the policy's weights, and prove that it holds them.

A sync writes a complete checkpoint, pauses the server, loads it, names the version, forgets the prefix cache, compares
log-probabilities with the trainer's, and only then resumes: a failure leaves the server paused.
The proof is the mean absolute gap of log-probabilities on one prompt of more than 300 tokens, read in two ways: every
token of the prompt, which the server reads anew, and the next token, for which it uses what it remembers of the prompt.
Each mean is divided by its own number of tokens. Both must lie within the tolerance of the new weights; checksums and
parameter sums prove nothing here, since a CPU server holds packed copies of which they know nothing.
Nothing of a paper is followed: the procedure is ours.

Shapes: X tokens that are compared.
"""

import json
import os
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rangeline.errors import RolloutError, StaleWeightsError, WeightSyncError
from rangeline.records import FloatArray
from rangeline.rollout.token_logprobs import token_logprobs
from rangeline.rollout.transformers_engine import evaluating
from rangeline.rollout.vllm_client import VllmClient
from rangeline.rollout.vllm_scoring import next_token_logprobs, prompt_logprobs
from rangeline.seeds import stream

MARKER = "COMPLETE"
_PROMPT_TOKENS = 330
"""More than two blocks of the prefix cache: a shorter prompt is never remembered, and a stale memory never seen."""
_NEXT_TOKENS = 8
TOLERANCE = {"cpu": 1e-4, "cuda": 0.05}
"""Largest mean gap by the server's device: float32 measured at 1e-5 and less; bfloat16 on a GPU is a guess, not run."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Probe:
    """Log-probabilities on the probe prompt under one version of the weights."""

    read_X: FloatArray
    """Of each of the prompt's tokens but the first."""
    next_X: FloatArray
    """Of some next tokens."""

    def gap(self, other: "Probe") -> float:
        """Return the larger of the two mean absolute gaps; infinity where a value is no number."""
        gaps = [
            float(np.abs(mine - theirs).mean())
            for mine, theirs in ((self.read_X, other.read_X), (self.next_X, other.next_X))
        ]
        return max(gap if np.isfinite(gap) else float("inf") for gap in gaps)


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncReport:
    """What one sync showed."""

    version: str
    gap_new: float
    """Mean gap of the server to the new weights."""
    gap_old: float | None
    """Mean gap of the server to the weights before; None at the first sync."""
    change: float | None
    """Mean gap of new and old weights themselves: below twice the tolerance the two cannot be told apart."""
    write_s: float
    load_s: float
    probe_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbePrompt:
    """What the probe asks: token ids of a prompt, and the next tokens."""

    prompt: tuple[int, ...]
    following: tuple[int, ...]


def probe_prompt(vocabulary: int, room: int) -> ProbePrompt:
    """Return the probe's fixed prompt.

    Parameters
    ----------
    vocabulary
        Token ids lie below it.
    room
        Tokens that the server takes at most; a smaller one than 332 makes the prompt shorter.
    """
    draws = stream(0, "weight probe").integers(0, vocabulary, _PROMPT_TOKENS + _NEXT_TOKENS)
    prompt = tuple(int(token) for token in draws[: min(_PROMPT_TOKENS, room - 2)])
    return ProbePrompt(prompt=prompt, following=tuple(sorted({int(t) for t in draws[_PROMPT_TOKENS:]})))


def probe_model(model: Any, asked: ProbePrompt) -> Probe:
    """Return the probe's values under the trainer's own weights, in their own precision."""
    ids = torch.tensor([(*asked.prompt, token) for token in asked.following], device=model.device)
    keep = torch.zeros(ids.shape, dtype=torch.bool, device=model.device)
    keep[:, -1] = True
    keep[0, 1:] = True
    with evaluating(model), torch.inference_mode():
        values, _ = token_logprobs(model, ids, torch.ones_like(ids), keep)
    array = values.double().cpu().numpy()
    return Probe(read_X=array[0, 1:-1], next_X=array[:, -1])


def probe_server(client: VllmClient, asked: ProbePrompt) -> Probe:
    """Return the probe's values under the weights, and the memory of prompts, that the server holds."""
    return Probe(
        # First: the other way puts the prompt into the prefix cache.
        next_X=next_token_logprobs(client, asked.prompt, asked.following),
        read_X=prompt_logprobs(client, asked.prompt, where="weight probe"),
    )


def require_fresh(server: Probe, new: Probe, old: Probe | None, *, tolerance: float, version: str) -> None:
    """Raise unless the server's values are the new weights' own.

    Raises
    ------
    StaleWeightsError
        When they are not; says whether they are the old weights'.
    """
    gap = server.gap(new)
    if gap <= tolerance:
        return
    where = "" if old is None else f", and {server.gap(old):.3g} to those before"
    msg = (
        f"The server must hold weights '{version}'; got a mean log-probability gap of {gap:.3g} to them{where} "
        f"(tolerance {tolerance:g}; {_what_is_stale(server, new, tolerance)}). It stays paused: sync again, or start "
        "the server again."
    )
    raise StaleWeightsError(msg)


def _what_is_stale(server: Probe, new: Probe, tolerance: float) -> str:
    if np.abs(server.read_X - new.read_X).mean() <= tolerance:
        return "only what it remembers of prompts is old: its prefix cache was not reset"
    return "the weights themselves differ"


def write_weights(model: Any, folder: Path) -> Path:
    """Write a complete checkpoint of the weights alone, or none; return its folder.

    Parameters
    ----------
    model
        Policy with float32 weights.
    folder
        Final name; one that is there is replaced.
    """
    partial = folder.with_name(f".{folder.name}.partial-{os.getpid()}")
    shutil.rmtree(partial, ignore_errors=True)
    model.save_pretrained(partial)
    files = {path.name: {"size": path.stat().st_size} for path in sorted(partial.iterdir())}
    (partial / MARKER).write_text(json.dumps({"files": files}, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)
    return folder


class WeightSync:
    """Keeps one server at the policy's version.

    Parameters
    ----------
    client
        The server.
    root
        Folder below which checkpoints are written; the server's own root, or a folder below it.
    owner
        What this trainer's versions are called by, so that no other's are mistaken for them.
    tolerance
        Largest mean gap; None takes that of the server's device.
    send
        Sends the policy's weights from GPU to GPU; None writes checkpoints.
    """

    def __init__(
        self,
        client: VllmClient,
        *,
        root: Path,
        owner: str,
        tolerance: float | None = None,
        send: Callable[[], None] | None = None,
    ) -> None:
        described = client.describe()
        if described["logprobs_mode"] != "processed_logprobs":
            msg = (
                f"The server must run with --logprobs-mode processed_logprobs; got '{described['logprobs_mode']}'. "
                "Start it with 'rangeline serve vllm'."
            )
            raise WeightSyncError(msg, state="unusable")
        if described["lora"] and described["device"] == "cpu":
            msg = (
                "A server with adapters must not be synced on a CPU: the proof would end its engine; got one started "
                "with --lora. Start it without."
            )
            raise WeightSyncError(msg, state="unusable")
        self.client = client
        self.root = root
        self.owner = owner
        self.tolerance = TOLERANCE.get(described["device"], TOLERANCE["cuda"]) if tolerance is None else tolerance
        self._send = send
        self.version: str | None = None
        """Name of the weights the server was proved to hold; None before the first sync and after a failed one."""
        self._old: Probe | None = None

    def sync(self, model: Any, policy_version: int) -> SyncReport:
        """Bring the server to the policy's weights, and prove it.

        Parameters
        ----------
        model
            The policy.
        policy_version
            Its version.

        Returns
        -------
        SyncReport
            Gaps and seconds.

        Raises
        ------
        WeightSyncError
            When the server refuses the checkpoint or its load breaks; it stays paused.
        StaleWeightsError
            When it does not hold the new weights afterwards; it stays paused.
        EngineDiedError
            When it is gone.
        """
        version, self.version = f"{self.owner}:{policy_version}", None
        clock = [time.perf_counter()]
        asked = probe_prompt(model.get_input_embeddings().weight.shape[0], self.client.max_model_len)
        new = probe_model(model, asked)
        folder = self.root / f"{self.owner}-{policy_version:06d}"
        if self._send is None:
            write_weights(model, folder)
        else:
            self.client.check_tensors({name: tuple(weight.shape) for name, weight in model.named_parameters()})
        clock.append(time.perf_counter())
        try:
            self.client.pause()
            if self._send is None:
                self.client.load_checkpoint(folder)
            else:
                self._send()
            self.client.set_weight_version(version)
            self.client.reset_prefix_cache()
            clock.append(time.perf_counter())
            server = self._probe(asked, new, version)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        clock.append(time.perf_counter())
        old, self._old, self.version = self._old, new, version
        seconds = np.diff(clock).tolist()
        return SyncReport(
            version=version,
            gap_new=server.gap(new),
            gap_old=None if old is None else server.gap(old),
            change=None if old is None else new.gap(old),
            write_s=seconds[0],
            load_s=seconds[1],
            probe_s=seconds[2],
        )

    def _probe(self, asked: ProbePrompt, new: Probe, version: str) -> Probe:
        """Let the server answer the probe alone; pause it again where its answer is wrong."""
        self.client.resume()
        try:
            server = probe_server(self.client, asked)
            require_fresh(server, new, self._old, tolerance=self.tolerance, version=version)
        except RolloutError:
            with suppress(RolloutError):
                self.client.pause()
            raise
        return server
