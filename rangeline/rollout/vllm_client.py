"""Calls to a vLLM server: token ids in, token ids out, and the control of its weights.

Nothing is computed here: each call is one HTTP request, and each failure becomes an error that says what to do.
A refused connection or a server that says it is unwell means that the engine died; a request that it refuses names its
reason; every other failure is of the server itself.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx

from rangeline.errors import EngineDiedError, RolloutError, WeightSyncError
from rangeline.rollout.vllm_server import SERVED_NAME

_TIMEOUT_S = 3600.0
"""A request may wait for many others to be written first."""
_REFUSED = range(400, 500)


class VllmClient:
    """A server's address, and what can be asked of it; safe to use from several threads.

    Parameters
    ----------
    url
        Address such as http://127.0.0.1:8000.
    model
        Name that the server gives its model, or that of a loaded adapter.
    timeout_s
        Longest wait for one reply.
    """

    def __init__(self, url: str, *, model: str = SERVED_NAME, timeout_s: float = _TIMEOUT_S) -> None:
        self.url = url.rstrip("/")
        self.model = model
        # A server that failed inside a call closes the connection without saying so: none is used twice.
        self._http = httpx.Client(
            base_url=self.url,
            timeout=httpx.Timeout(timeout_s, connect=10.0),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
            trust_env=False,
        )

    def close(self) -> None:
        """Let the connections go."""
        self._http.close()

    @cached_property
    def max_model_len(self) -> int:
        """Longest prompt and completion together, in tokens."""
        return int(self._call("GET", "/v1/models")["data"][0]["max_model_len"])

    @property
    def is_healthy(self) -> bool:
        """Whether the server answers that it is well."""
        try:
            return self._http.get("/health", timeout=10.0).status_code == httpx.codes.OK
        except httpx.HTTPError:
            return False

    def generate(self, token_ids: Sequence[int], *, where: str, **sampling: Any) -> dict[str, Any]:
        """Return the server's reply to one prompt of token ids.

        Parameters
        ----------
        token_ids
            The prompt, sent as it is.
        where
            What an error names, such as "prompt 'p1'".
        **sampling
            vLLM's sampling parameters.

        Raises
        ------
        RolloutError
            When the server refuses the request, or answers for other token ids than those sent.
        EngineDiedError
            When it is gone.
        """
        body = {
            "model": self.model,
            "token_ids": list(token_ids),
            "return_token_ids": True,
            "sampling_params": {"top_p": 1.0, "top_k": -1, "min_p": 0.0, "detokenize": False, **sampling},
        }
        reply: dict[str, Any] = self._call("POST", "/inference/v1/generate", body, where=where)
        if reply["prompt_token_ids"] != body["token_ids"]:
            msg = f"The server must read the token ids it is sent; got others back ({where}). Use another server."
            raise RolloutError(msg)
        return reply

    def describe(self) -> dict[str, Any]:
        """Return device, model folder, root of checkpoints and log-prob mode of the server's workers.

        Raises
        ------
        RolloutError
            When it was not started by Rangeline: its workers cannot load checkpoints.
        """
        reply = self._call("POST", "/collective_rpc", {"method": "rangeline_describe"}, where="what it holds")
        return dict(reply["results"][0])

    def pause(self) -> None:
        """Let what is being written end, and start nothing new."""
        self._call("POST", "/pause", query={"mode": "wait"}, where="pause")

    def resume(self) -> None:
        """Go on after a pause."""
        self._call("POST", "/resume", where="resume")

    @property
    def is_paused(self) -> bool:
        """Whether it starts nothing new."""
        return bool(self._call("GET", "/is_paused", where="pause")["is_paused"])

    @property
    def weight_version(self) -> str:
        """Name of the weights that it says it holds."""
        return str(self._call("GET", "/weight_info", where="weight version")["weight_version"])

    def set_weight_version(self, version: str) -> None:
        """Name the weights; every completion from now on carries this name."""
        self._call("POST", "/update_weight_version", {"new_version": version}, where="weight version")

    def reset_prefix_cache(self) -> None:
        """Forget the keys and values of prompts: they belong to the weights that made them.

        Raises
        ------
        WeightSyncError
            When the server cannot, since it still writes.
        """
        if not self._call("POST", "/reset_prefix_cache", where="prefix cache")["success"]:
            msg = "The prefix cache must be reset after an update; the server could not. Pause it, and sync again."
            raise WeightSyncError(msg)

    def load_checkpoint(self, folder: Path) -> None:
        """Load the weights of a complete checkpoint below the server's root; nothing else is reset by it.

        Raises
        ------
        WeightSyncError
            When it is refused, with nothing changed, or fails midway, with weights of no use; the message says which.
        EngineDiedError
            When the server is gone.
        """
        body = {"method": "rangeline_load", "kwargs": {"folder": str(folder.resolve())}}
        try:
            results = self._call("POST", "/collective_rpc", body, where="load")["results"]
        except EngineDiedError:
            raise
        except RolloutError as error:
            msg = f"Weights of '{folder}' must load whole; the update broke: {error} Sync a complete checkpoint again."
            raise WeightSyncError(msg, state="update broken") from error
        refused = [result["reason"] for result in results if result["state"] != "loaded"]
        if refused:
            msg = f"Weights of '{folder}' must be those of the served model; refused: {refused[0]} Nothing was changed."
            raise WeightSyncError(msg, state="update refused")

    def load_adapter(self, name: str, folder: Path, *, in_place: bool = False) -> None:
        """Load a LoRA adapter under a name, which requests then give as their model.

        Parameters
        ----------
        name
            New name, or with `in_place` one that is already served.
        folder
            adapter_config.json and adapter_model.safetensors.
        in_place
            Replace the adapter of that name.

        Raises
        ------
        RolloutError
            When the server refuses.
        """
        body = {"lora_name": name, "lora_path": str(folder.resolve()), "load_inplace": in_place}
        self._call("POST", "/v1/load_lora_adapter", body, where=f"adapter '{name}'")

    def unload_adapter(self, name: str) -> None:
        """Take an adapter away; requests for its name are refused from now on."""
        self._call("POST", "/v1/unload_lora_adapter", {"lora_name": name}, where=f"adapter '{name}'")

    def check_tensors(self, shapes: Mapping[str, Sequence[int]]) -> None:
        """Ask whether tensors of these names and shapes are all of the served model's, before any is sent.

        Raises
        ------
        WeightSyncError
            When they are not.
        """
        kwargs = {"shapes": {name: list(shape) for name, shape in shapes.items()}}
        reply = self._call("POST", "/collective_rpc", {"method": "rangeline_check", "kwargs": kwargs}, where="check")
        refused = [result["reason"] for result in reply["results"] if result["state"] != "same"]
        if refused:
            msg = f"The policy's weights must be those of the served model; refused: {refused[0]} Nothing was changed."
            raise WeightSyncError(msg, state="update refused")

    def get(self, path: str, *, where: str) -> Any:
        """Read what has no method here."""
        return self._call("GET", path, where=where)

    def post(self, path: str, body: Mapping[str, Any] | None = None, *, where: str) -> Any:
        """Send a request that has no method here, such as those of another weight transfer."""
        return self._call("POST", path, body, where=where)

    def _call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        query: Mapping[str, str] | None = None,
        where: str = "settings",
    ) -> Any:
        try:
            reply = self._http.request(method, path, json=body, params=query)
        except httpx.HTTPError as error:
            msg = f"The vLLM server at {self.url} must answer; got {type(error).__name__} ({where}). Start it again."
            raise EngineDiedError(msg) from error
        if reply.status_code == httpx.codes.OK:
            return reply.json() if "json" in reply.headers.get("content-type", "") else reply.text
        reason = _reason(reply)
        if reply.status_code not in _REFUSED and not self.is_healthy:
            msg = f"The vLLM server at {self.url} must be well; got {reason} ({where}). Start it again."
            raise EngineDiedError(msg)
        msg = f"The vLLM server at {self.url} must take the request; got {reply.status_code}: {reason} ({where})."
        raise RolloutError(msg)


def _reason(reply: httpx.Response) -> str:
    try:
        content = reply.json()
        return str(content.get("error", {}).get("message") or content)[:500]
    except (ValueError, AttributeError):
        return reply.text[:500]
