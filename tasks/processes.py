"""Launch, watch and end a child process group, and hold the file lock that processes share; no Prefect inside.

A child gets a session of its own, so that its whole family can be ended at once. It dies with this process even when
this process is killed outright (`PR_SET_PDEATHSIG`, Linux only; the signal follows the launching thread, which stays
here until the child ends). That signal reaches the direct child alone: our own commands call `watch_parent` first,
which ends each of them as soon as its parent is gone.
"""

import codecs
import fcntl
import os
import re
import selectors
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType

from rangeline.errors import ToolError
from rangeline.orphans import die_with_parent

TELEMETRY_OFF: Mapping[str, str] = MappingProxyType(
    {
        "DO_NOT_TRACK": "true",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "DVC_NO_ANALYTICS": "1",
        "GX_ANALYTICS_ENABLED": "false",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
    }
)
"""Environment that keeps every tool from reporting home; MLflow wants the word `true`."""

_TICK_S = 0.1
_GRACE_S = 2.0
"""Time between the polite and the final signal: enough for dvc to release its locks."""
_NUM_LAST_LINES = 15


def silence_telemetry() -> None:
    """Set the variables of `TELEMETRY_OFF` in this process; call before a tool is imported."""
    os.environ.update(TELEMETRY_OFF)


@contextmanager
def file_lock(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a file, waiting for whoever holds it; a killed holder releases it.

    Parameters
    ----------
    path
        Lock file, made with its folder where absent and never removed (removal would let two holders in).
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def run_streaming(
    command: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    on_line: Callable[[str], None],
    timeout_s: float | None = None,
) -> int:
    r"""Run a command in its own process group, hand over its lines as they come, and leave no process behind.

    Parameters
    ----------
    command
        Program and arguments; no shell.
    cwd
        Folder it runs in.
    env
        Variables added to the inherited ones; None adds nothing. Telemetry is off and output unbuffered either way,
        and the folder of this interpreter leads `PATH`, so that `python` means the same one in a child's scripts.
    on_line
        Called with each line of stdout and stderr in the order written, without its line end; `\r` ends a line too.
    timeout_s
        Seconds after which the group is ended; None waits for ever.

    Returns
    -------
    int
        Exit status; minus the signal number when a signal ended it.

    Raises
    ------
    ToolError
        If the program cannot be started, or runs past `timeout_s`.
    """
    process = _start(command, cwd, env)
    try:
        finished = _stream(process, on_line, timeout_s)
    finally:
        returncode = _end_group(process)
    if not finished:
        msg = f"'{command[0]}' must end within {timeout_s} s; it was stopped ({_shown(command)}). Give it more time."
        raise ToolError(msg)
    return returncode


def require_success(
    command: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    on_line: Callable[[str], None] | None = None,
    timeout_s: float | None = None,
) -> None:
    """Run a command as `run_streaming` does and refuse any exit status but 0.

    Parameters
    ----------
    command, cwd, env, on_line, timeout_s
        As in `run_streaming`; `on_line=None` drops the lines.

    Raises
    ------
    ToolError
        If the exit status is not 0 (the last 15 lines are in the message), if the program cannot be started, or if
        it runs past `timeout_s`.
    """
    last: deque[str] = deque(maxlen=_NUM_LAST_LINES)

    def keep(line: str) -> None:
        last.append(line)
        if on_line is not None:
            on_line(line)

    status = run_streaming(command, cwd=cwd, env=env, on_line=keep, timeout_s=timeout_s)
    if status != 0:
        said = "\n".join(last) or "(it wrote nothing)"
        msg = f"'{_shown(command)}' must exit with 0; got {status} (in {cwd}). Its last lines:\n{said}"
        raise ToolError(msg)


def _shown(command: Sequence[str]) -> str:
    return " ".join(command)


def _start(command: Sequence[str], cwd: Path, env: Mapping[str, str] | None) -> subprocess.Popen[bytes]:
    merged = {**os.environ, **(env or {}), **TELEMETRY_OFF, "PYTHONUNBUFFERED": "1"}
    merged["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), merged.get("PATH", os.defpath)])
    try:
        return subprocess.Popen(
            list(command),
            cwd=cwd,
            env=merged,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=die_with_parent() if sys.platform == "linux" else None,
        )
    except OSError as error:
        msg = f"'{command[0]}' must be a program that can be started; got {error} (in {cwd}). Check the installation."
        raise ToolError(msg) from error


def _stream(process: subprocess.Popen[bytes], on_line: Callable[[str], None], timeout_s: float | None) -> bool:
    """Hand over lines until the child ends; False when time ran out first."""
    assert process.stdout is not None
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    pipe, lines = process.stdout.fileno(), _LineSplitter(on_line)
    is_open = True
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while True:
            # Looked at before the pipe: what the child wrote before it ended is then still read. Waiting for the end
            # of the pipe alone would hang on a forgotten grandchild that holds it open.
            ended = _has_ended(process.pid)
            if is_open and selector.select(timeout=0 if ended else _TICK_S):
                chunk = os.read(pipe, 65536)
                is_open = bool(chunk)
                lines.feed(chunk)
            elif ended:
                lines.close()
                return True
            elif not is_open:
                time.sleep(_TICK_S / 10)
            if deadline is not None and time.monotonic() > deadline:
                lines.close()
                return False


class _LineSplitter:
    """Cut a byte stream into lines at newline, carriage return, or both together."""

    def __init__(self, on_line: Callable[[str], None]) -> None:
        self._on_line = on_line
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._rest = ""

    def feed(self, chunk: bytes) -> None:
        text = self._rest + self._decoder.decode(chunk, final=not chunk)
        # A carriage return at the very end waits: a newline may follow and belong to it.
        *lines, self._rest = re.split(r"\r\n|\n|\r(?=[^\n])", text)
        for line in lines:
            self._on_line(line)

    def close(self) -> None:
        self.feed(b"")
        rest, self._rest = self._rest.rstrip("\r"), ""
        if rest:
            self._on_line(rest)


def _has_ended(pid: int) -> bool:
    # WNOWAIT leaves the zombie: its number cannot be given to another group before the group was signalled.
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _end_group(process: subprocess.Popen[bytes]) -> int:
    if not _has_ended(process.pid):
        os.killpg(process.pid, signal.SIGTERM)
        deadline = time.monotonic() + _GRACE_S
        while not _has_ended(process.pid) and time.monotonic() < deadline:
            time.sleep(_TICK_S / 10)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    if process.stdout is not None:
        process.stdout.close()
    return process.wait()
