"""Start, watch and end a vLLM server of our own: a process group in vLLM's own environment, on loopback alone.

The server is reached over HTTP and never imported. It gets a session of its own, so that its engine process, which a
killed server leaves behind, ends with the group; both also watch this process and end when it is gone.
Formulas there are none and nothing is divided.
"""

import json
import os
import signal
import socket
import subprocess
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import httpx

from rangeline.errors import ConfigError, RolloutError

_WORKER_SIDE = Path(__file__).with_name("worker_side")
_PROJECT = Path(__file__).resolve().parents[2]
_LOOK_EVERY_S = 0.5
_START_S = 900.0
_STOP_S = 15.0
_LAST_LINES = 12
SERVED_NAME = "policy"
"""Name that requests give the model, whatever its folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """What a server is started with; what differs between CPU and GPU is settled where it starts."""

    model: Path
    """Folder with safetensors weights and tokenizer."""
    sync_root: Path
    """The only folder below which checkpoints are loaded from."""
    max_model_len: int = 2048
    """Longest prompt and completion together, in tokens."""
    dtype: str = "auto"
    """auto: float32 on a CPU, bfloat16 on a GPU."""
    max_num_seqs: int = 64
    """Sequences that are written at once."""
    kv_gib: int = 1
    """Memory of keys and values on a CPU; a GPU takes what is free."""
    port: int = 0
    """0: any free one."""
    lora: bool = False
    """Whether adapters can be loaded while it runs."""
    lora_rank: int = 16
    transfer: str | None = None
    """nccl or ipc: weights arrive from a trainer on a GPU; None: from checkpoint folders."""
    extra: tuple[str, ...] = ()
    """Further words of vLLM's command line, such as --tensor-parallel-size 2."""


def vllm_python() -> Path:
    """Return the interpreter of vLLM's environment: RANGELINE_VLLM_PYTHON, else the one that `make vllm` builds.

    Raises
    ------
    ConfigError
        When there is none.
    """
    chosen = os.environ.get("RANGELINE_VLLM_PYTHON")
    # Not resolved: a virtual environment is known by the path of its link.
    path = Path(chosen) if chosen else _PROJECT / ".venv-vllm" / "bin" / "python"
    if not path.is_file():
        msg = f"vLLM's environment must be there; got no '{path}'. Run 'make vllm', or set RANGELINE_VLLM_PYTHON."
        raise ConfigError(msg)
    return path


class VllmServer:
    """A running server; start it with `VllmServer.start` and end it with `stop`, or use it as a context manager."""

    def __init__(self, process: "subprocess.Popen[bytes]", url: str, log: Path) -> None:
        self.url = url
        self.log = log
        self._process = process

    @classmethod
    def start(
        cls,
        options: ServerOptions,
        *,
        log: Path,
        progress: Callable[[int, int], None] | None = None,
        timeout_s: float = _START_S,
    ) -> Self:
        """Start a server and wait until it answers.

        Parameters
        ----------
        options
            What it serves and how.
        log
            File for all that it writes.
        progress
            Called with (seconds waited, seconds at most) while it starts.
        timeout_s
            Seconds after which it is given up.

        Raises
        ------
        ConfigError
            When vLLM's environment is not there.
        RolloutError
            When the server ends or does not answer in time; its last lines are in the message.
        """
        port = options.port or _free_port()
        log.parent.mkdir(parents=True, exist_ok=True)
        options.sync_root.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            process = subprocess.Popen(
                [str(vllm_python()), str(_WORKER_SIDE / "serve_vllm.py"), json.dumps(_as_json(options, port))],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=_environment(),
            )
        server = cls(process, f"http://127.0.0.1:{port}", log)
        is_up = False
        try:
            server._wait(timeout_s, progress)
            is_up = True
        finally:
            if not is_up:
                server.stop()
        return server

    @property
    def pid(self) -> int:
        """Process that answers requests; also the number of the whole group."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether that process still runs."""
        return self._process.poll() is None

    def stop(self) -> None:
        """End the server and all of its processes."""
        if self.is_alive:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_STOP_S)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def wait(self) -> int:
        """Wait until the server ends by itself; return its exit status."""
        return self._process.wait()

    def __enter__(self) -> Self:
        """Return the running server."""
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        self.stop()

    def _wait(self, timeout_s: float, progress: Callable[[int, int], None] | None) -> None:
        started = time.monotonic()
        while (waited := time.monotonic() - started) < timeout_s:
            if not self.is_alive:
                msg = (
                    f"The vLLM server must start; it ended with status {self._process.returncode}. Its last lines "
                    f"({self.log}):\n{self.last_lines()}"
                )
                raise RolloutError(msg)
            with suppress(httpx.HTTPError):
                if httpx.get(f"{self.url}/health", timeout=5).status_code == httpx.codes.OK:
                    return
            if progress is not None:
                progress(int(waited), int(timeout_s))
            time.sleep(_LOOK_EVERY_S)
        msg = (
            f"The vLLM server must answer within {timeout_s:.0f} s; got nothing at {self.url}. Its last lines "
            f"({self.log}):\n{self.last_lines()}"
        )
        raise RolloutError(msg)

    def last_lines(self) -> str:
        """Return the end of its log."""
        with self.log.open(encoding="utf-8", errors="replace") as file:
            return "".join(deque(file, maxlen=_LAST_LINES)).rstrip()


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _as_json(options: ServerOptions, port: int) -> dict[str, Any]:
    return {
        "model": str(options.model.resolve()),
        "root": str(options.sync_root.resolve()),
        "host": "127.0.0.1",
        "port": port,
        "served_name": SERVED_NAME,
        "max_model_len": options.max_model_len,
        "dtype": options.dtype,
        "max_num_seqs": options.max_num_seqs,
        "kv_gib": options.kv_gib,
        "lora": options.lora,
        "lora_rank": options.lora_rank,
        "transfer": options.transfer,
        "extra": list(options.extra),
    }


def _environment() -> dict[str, str]:
    # This environment's own packages must not lead vLLM's; its one foreign module is the worker's.
    dropped = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "OMP_NUM_THREADS"}
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    return {**kept, "PYTHONPATH": str(_WORKER_SIDE), "PYTHONUNBUFFERED": "1"}
