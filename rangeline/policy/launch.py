"""Start the processes of a policy with torchrun, talk to all of them, and leave none behind.

It computes nothing: a call goes to every process, and their replies come back by rank.
There is no formula here and nothing is divided.
Starting over several machines is left out: the launcher and the run share a socket in a folder of this machine.

Whatever happens, all processes end: the launcher dies with this process (`PR_SET_PDEATHSIG`), each rank ends when its
launcher or this process is gone, the launcher ends the others when a rank fails, and a call that finds a rank gone, or
gets an error from one, ends them all and says why.
"""

import os
import re
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import torch
import yaml
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.utils.launch import prepare_deepspeed_cmd_env, prepare_multi_gpu_env

from rangeline import errors
from rangeline.errors import ConfigError, RangelineError, ToolError
from rangeline.orphans import die_with_parent
from rangeline.policy.messages import receive, send
from rangeline.policy.rank import SOCKET

START_S = 600.0
"""Seconds that all processes may take to import their libraries and call back, on a busy machine."""
_GRACE_S = 10.0
_TICK_S = 0.2
_NUM_LAST_LINES = 15
_LAUNCHER = re.compile(r"^(?:\[?[EW]\d{4} .*|.*WARNING.*)torch/distributed/(?:elastic|run)", re.MULTILINE)
"""Begins what torchrun says when a process has failed; what the process itself said stands before it."""
_CAUSE = re.compile(r"Root Cause.*?rank\s*:\s*(\d+).*?exitcode\s*:\s*(-?\d+)", re.DOTALL)


def launch_environment(num_processes: int, accelerate_config: Path | None) -> dict[str, str]:
    """Return the variables by which Accelerate knows how to train: what its own launcher would set.

    Parameters
    ----------
    num_processes
        World size.
    accelerate_config
        A file of `accelerate config`, such as `deploy/accelerate/fsdp2.yaml`; None is DDP.

    Raises
    ------
    ConfigError
        When the file is absent, no such configuration, or names another number of processes.
    """
    variables = {} if torch.cuda.is_available() else {"ACCELERATE_USE_CPU": "true"}
    if accelerate_config is None:
        return variables
    if not accelerate_config.is_file():
        msg = f"'processes.accelerate_config' must be a file; got '{accelerate_config}', which is none. Correct it."
        raise ConfigError(msg)
    options = ["--config_file", str(accelerate_config), "--num_processes", str(num_processes)]
    try:
        asked, defaults, precision_is_set = _validate_launch_command(
            launch_command_parser().parse_args([*options, "--main_process_port", "0", "rank"])
        )
        if asked.use_deepspeed:
            names = [*defaults.deepspeed_config, *(["mixed_precision"] if precision_is_set else [])]
            asked.deepspeed_fields_from_accelerate_config = ",".join(names)
            found = prepare_deepspeed_cmd_env(asked)[1]
        else:
            found = prepare_multi_gpu_env(asked)
    except (AttributeError, ValueError, TypeError, KeyError, yaml.YAMLError) as error:
        msg = f"'{accelerate_config}' must be a configuration of Accelerate; got: {error}. Make one: accelerate config."
        raise ConfigError(msg) from error
    if defaults.num_processes not in (-1, num_processes):
        msg = (
            f"'processes.count' must be the number of '{accelerate_config}', {defaults.num_processes}; got "
            f"{num_processes}. Change one of them, or set num_processes to -1 in the file."
        )
        raise ConfigError(msg)
    variables |= {name: value for name, value in found.items() if os.environ.get(name) != value}
    variables.pop("PYTHONPATH", None)
    return variables


class Ranks:
    """The running processes of a policy, by rank.

    Parameters
    ----------
    num_processes
        World size.
    environment
        Of `launch_environment`.
    module
        What each process runs.

    Raises
    ------
    ToolError
        When they do not all call back in time.
    """

    def __init__(
        self, num_processes: int, environment: Mapping[str, str], *, module: str = "rangeline.policy.rank"
    ) -> None:
        self.size = num_processes
        self._failure: RangelineError | None = None
        self._connections: dict[int, socket.socket] = {}
        self.pids: dict[int, int] = {}
        """Process ids by rank."""
        self._folder = Path(tempfile.mkdtemp(prefix="rangeline-policy-"))
        address = self._folder / "socket"
        with socket.socket(socket.AF_UNIX) as door:
            door.bind(str(address))
            door.listen(num_processes)
            self._process = self._start(address, environment, module)
            self._welcome(door)

    @property
    def launcher_pid(self) -> int:
        """Process id of torchrun."""
        return self._process.pid

    def _start(self, address: Path, environment: Mapping[str, str], module: str) -> subprocess.Popen[bytes]:
        home = str(Path(__file__).resolve().parents[2])
        paths = [home, *filter(None, [os.environ.get("PYTHONPATH")])]
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={self.size}"]
        # Threads share the cores that there are; torchrun would say 1 with a warning.
        threads = os.environ.get("OMP_NUM_THREADS") or str(max((os.cpu_count() or 1) // self.size, 1))
        with (self._folder / "output").open("wb") as output:
            return subprocess.Popen(
                [*command, "--max-restarts=0", "--module", module],
                env={
                    **os.environ,
                    **environment,
                    "PYTHONPATH": os.pathsep.join(paths),
                    "PYTHONUNBUFFERED": "1",
                    "OMP_NUM_THREADS": threads,
                    SOCKET: str(address),
                },
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=die_with_parent() if sys.platform == "linux" else None,
            )

    def _welcome(self, door: socket.socket) -> None:
        door.settimeout(_TICK_S)
        deadline = time.monotonic() + START_S
        while len(self._connections) < self.size:
            try:
                connection, _ = door.accept()
            except TimeoutError:
                if self._process.poll() is not None:
                    self._fail("ended before they were ready")
                if time.monotonic() > deadline:
                    self._fail(f"were not ready within {START_S:.0f} s")
                continue
            connection.settimeout(None)
            hello = receive(connection)
            self._connections[hello["rank"]] = connection
            self.pids[hello["rank"]] = hello["pid"]

    def call(
        self, messages: Sequence[Mapping[str, Any]], progress: Callable[[int, int], None] | None = None
    ) -> list[dict[str, Any]]:
        """Send each process its message and return their replies, by rank.

        Parameters
        ----------
        messages
            One a rank.
        progress
            Called with what all processes have done and are to do.

        Raises
        ------
        RangelineError
            Of the class that a process raised; all processes are ended.
        ToolError
            When a process is gone; all others are ended.
        """
        self._send(messages)
        replies: dict[int, dict[str, Any]] = {}
        steps: dict[int, tuple[int, int]] = {}
        with selectors.DefaultSelector() as selector:
            for rank, connection in self._connections.items():
                selector.register(connection, selectors.EVENT_READ, rank)
            while len(replies) < self.size:
                for key, _ in selector.select():
                    rank = key.data
                    reply = self._receive(rank)
                    if "progress" in reply:
                        steps[rank] = reply["progress"]
                        if progress is not None:
                            progress(sum(done for done, _ in steps.values()), sum(total for _, total in steps.values()))
                    elif "error" in reply:
                        self._raise(rank, reply)
                    else:
                        replies[rank] = reply
                        selector.unregister(key.fileobj)
        return [replies[rank] for rank in range(self.size)]

    def _send(self, messages: Sequence[Mapping[str, Any]]) -> None:
        if self._failure is not None:
            raise self._failure
        if self._process.poll() is not None:
            self._gone(None)
        for rank, message in enumerate(messages):
            try:
                send(self._connections[rank], message)
            except OSError:
                self._gone(rank)

    def _receive(self, rank: int) -> dict[str, Any]:
        try:
            return receive(self._connections[rank])
        except EOFError:
            self._gone(rank)

    def _raise(self, rank: int, reply: Mapping[str, Any]) -> NoReturn:
        # The others may wait for this one inside an exchange that will never come.
        kind = getattr(errors, str(reply["error"]), RangelineError)
        self._failure = kind(f"{reply['message']} (policy process {rank} of {self.size})")
        self.end()
        raise self._failure

    def _gone(self, rank: int | None) -> NoReturn:
        # Torchrun writes who failed first once it has ended the others.
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=_GRACE_S)
        found = _CAUSE.search(self._output())
        if found:
            who, status = f"process {found[1]}", int(found[2])
        elif rank is None:
            who, status = "their launcher", self._process.returncode
        else:
            self._fail(f"must live as long as the run; got process {rank} gone")
        how = f"signal {-status}" if status < 0 else f"exit status {status}"
        self._fail(f"must live as long as the run; got {who} ended by {how}")

    def _fail(self, what: str) -> NoReturn:
        own = _LAUNCHER.split(self._output(), maxsplit=1)[0]
        lines = [line for line in own.splitlines() if line.strip()]
        said = "\n".join(lines[-_NUM_LAST_LINES:]) or "(they wrote nothing)"
        self._failure = ToolError(
            f"The {self.size} policy processes {what}. All were ended; the same command resumes from the last "
            f"checkpoint. Their last lines:\n{said}"
        )
        self.end()
        raise self._failure

    def _output(self) -> str:
        path = self._folder / "output"
        return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""

    def close(self) -> None:
        """Let all processes end by themselves, then make sure."""
        if self._failure is None and self._connections:
            with suppress(RangelineError):
                self.call([{"call": "close"}] * self.size)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=_GRACE_S)
            self._failure = ToolError("The policy must be open to be called; it was closed. Open another session.")
        self.end()

    def end(self) -> None:
        """End every process at once."""
        if self._process.poll() is None:
            # While the launcher lives it has not given a rank's number back.
            for pid in self.pids.values():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for connection in self._connections.values():
            connection.close()
        shutil.rmtree(self._folder, ignore_errors=True)
