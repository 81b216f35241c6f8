"""Prefect server, MLflow server, deployments and a worker as one family, on loopback; no tool is imported here.

Each server is started behind a guard that ends its whole family when this process is gone. What each of them says goes
to a file of its own, whose last lines are told when it ends by itself.
"""

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from rangeline.errors import ConfigError, ToolError
from tasks.left_runs import fetch, mark_left_runs
from tasks.processes import TELEMETRY_OFF, require_success
from tasks.server import own_origins

POOL = "rangeline"
PARTS = ("prefect", "mlflow", "worker")
_START_S = 300.0
_STOP_S = 25.0
_TICK_S = 0.3
_NUM_LAST_LINES = 8
_QUIET = ("PREFECT_API_KEY", "PREFECT_LOGGING_LEVEL", "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW")
"""Left out of the children's environment: a cloud key would win over the own server, and the UI shows log lines."""


@dataclass(frozen=True, slots=True)
class ServePlan:
    """Where the servers work and listen."""

    root: Path
    """Workspace whose runs are shown."""
    project: Path
    """Folder of flows and `prefect.yaml`."""
    prefect_port: int
    mlflow_port: int
    parts: tuple[str, ...] = PARTS
    """Which of them are served; a worker needs the Prefect server."""

    @property
    def api(self) -> str:
        """Address of the Prefect API."""
        return f"http://127.0.0.1:{self.prefect_port}/api"

    @property
    def page(self) -> str:
        """Address of the Prefect page."""
        return self.api.removesuffix("/api")

    @property
    def mlflow(self) -> str:
        """Address of the MLflow server."""
        return f"http://127.0.0.1:{self.mlflow_port}"

    def environment(self) -> dict[str, str]:
        """Return what every child gets: this server, its pages' origins, no telemetry."""
        kept = {name: value for name, value in os.environ.items() if name not in _QUIET}
        return {
            **kept,
            **TELEMETRY_OFF,
            "PREFECT_API_URL": self.api,
            "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": ",".join(own_origins(self.prefect_port)),
            "PREFECT_SERVER_UI_API_URL": self.api,
            # Jobs that a page could start are no part of what is shown here.
            "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
            "PYTHONUNBUFFERED": "1",
            "RANGELINE_HOME": str(self.project),
        }


def prefect_command(plan: ServePlan) -> list[str]:
    """Return the command of the Prefect server, which takes its own host name and pages alone."""
    return [sys.executable, "-m", "tasks.server", str(plan.prefect_port)]


def mlflow_command(root: Path, port: int) -> list[str]:
    """Return the command of an MLflow server on a workspace's store, for loopback's names and its own pages."""
    hosts = ",".join(origin.removeprefix("http://") for origin in own_origins(port))
    return [
        *(sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port)),
        *("--backend-store-uri", f"sqlite:///{root / 'mlruns' / 'mlflow.db'}"),
        *("--default-artifact-root", (root / "mlruns" / "artifacts").as_uri(), "--workers", "1"),
        *("--allowed-hosts", hosts, "--cors-allowed-origins", ",".join(own_origins(port))),
    ]


def deploy_command(plan: ServePlan) -> list[str]:
    """Return what puts automations on the server and, where a worker is to run, the pool and the deployments.

    A child, since prefect reads its settings when it is imported.
    """
    return [sys.executable, "-m", "tasks.automations", *([str(plan.project)] if "worker" in plan.parts else [])]


def worker_command() -> list[str]:
    """Return the command of a worker that runs each flow as a process of this machine."""
    return [sys.executable, "-m", "prefect", "worker", "start", "--pool", POOL, "--type", "process"]


class Family:
    """The running children by name, each with the file that holds its words."""

    def __init__(self, plan: ServePlan) -> None:
        self._plan = plan
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self.logs = plan.root / ".rangeline" / "serve"

    def start(self, name: str, command: list[str]) -> None:
        """Start a child behind its guard."""
        self.logs.mkdir(parents=True, exist_ok=True)
        with (self.logs / f"{name}.log").open("wb") as log:
            self._children[name] = subprocess.Popen(
                [sys.executable, "-m", "tasks.guard", *command],
                cwd=self._plan.project,
                env=self._plan.environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Ctrl-C on a terminal reaches this process alone, which ends the family in order.
                start_new_session=True,
            )

    def check(self) -> None:
        """Refuse to go on when a child has ended.

        Raises
        ------
        ToolError
            With its name, status and last lines.
        """
        for name, child in self._children.items():
            if child.poll() is not None:
                log = self.logs / f"{name}.log"
                with log.open(encoding="utf-8", errors="replace") as lines:
                    last = "".join(deque(lines, _NUM_LAST_LINES)) or "(it wrote nothing)"
                msg = f"'{name}' must run; it ended with status {child.returncode} ({log}). Its last lines:\n{last}"
                raise ToolError(msg)

    def wait(self, name: str, answers: Callable[[], bool]) -> None:
        """Wait until a child answers.

        Raises
        ------
        ToolError
            When a child ends meanwhile, or this one does not answer in time.
        """
        deadline = time.monotonic() + _START_S
        while time.monotonic() < deadline:
            self.check()
            if answers():
                return
            time.sleep(_TICK_S)
        msg = f"'{name}' must answer within {_START_S:.0f} s; got nothing (its words: {self.logs / name}.log)."
        raise ToolError(msg)

    def end(self, between: Callable[[], object] = lambda: None) -> None:
        """End the children, the last one started first; one that does not end in time is killed with its family.

        Parameters
        ----------
        between
            Called once the worker has ended and the Prefect server has not.
        """
        for name, child in reversed(self._children.items()):
            if name == "prefect" and "worker" in self._children:
                between()
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                child.wait(_STOP_S)
            left = _below(child)
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
            for process in left:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            child.wait()


def _below(child: "subprocess.Popen[bytes]") -> list[psutil.Process]:
    """Return what is below a child that did not end in time; flow runs lie in groups of their own."""
    if child.poll() is not None:
        return []
    try:
        return psutil.Process(child.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


@contextmanager
def serving(plan: ServePlan, say: Callable[[str], None]) -> Iterator[Family]:
    """Run the servers, the deployments and the worker while the block runs; all of them answer when it begins.

    Parameters
    ----------
    plan
        Workspace and ports.
    say
        Called with each step in words.

    Raises
    ------
    ConfigError
        When another server of the workspace runs, or a port is in use.
    ToolError
        When one of them does not start.
    """
    with ExitStack() as stack:
        stack.enter_context(only_server(plan, say))
        ports = {"prefect": ("--port", plan.prefect_port), "mlflow": ("--mlflow-port", plan.mlflow_port)}
        for name in plan.parts:
            if name in ports:
                require_free(*ports[name])
        family = Family(plan)
        stack.callback(family.end, between=lambda: mark_left_runs(plan.api, POOL))
        if "prefect" in plan.parts:
            family.start("prefect", prefect_command(plan))
        if "mlflow" in plan.parts:
            family.start("mlflow", mlflow_command(plan.root, plan.mlflow_port))
            family.wait("mlflow", lambda: fetch(f"{plan.mlflow}/health") is not None)
            say(f"MLflow answers at {plan.mlflow}")
        if "prefect" in plan.parts:
            family.wait("prefect", lambda: fetch(f"{plan.api}/health") is not None)
            require_success(deploy_command(plan), cwd=plan.project, env=plan.environment())
            say(f"Prefect answers at {plan.page}")
        if "worker" in plan.parts:
            for name in mark_left_runs(plan.api, POOL):
                say(f"Flow run '{name}' was left by a killed server; it is marked Crashed")
            family.start("worker", worker_command())
            family.wait("worker", lambda: worker_is_online(plan))
            say(f"Every flow is deployed, and a worker of the pool '{POOL}' waits for flow runs")
        yield family


@contextmanager
def only_server(plan: ServePlan, say: Callable[[str], None]) -> Iterator[None]:
    """Hold the workspace's server lock; tell who holds it, or that its last holder was killed.

    Raises
    ------
    ConfigError
        When it is held; names the process and its addresses.
    """
    path = plan.root / ".rangeline" / "serve.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="utf-8") as handle:
        handle.seek(0)
        note = _note(handle.read())
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            msg = (
                f"'{plan.root}' must have one 'rangeline serve' at a time; got process {note.get('pid', 'unknown')} "
                f"already (Prefect {note.get('prefect', 'unknown')}, MLflow {note.get('mlflow', 'unknown')}). "
                "Use it, or end it with Ctrl-C there."
            )
            raise ConfigError(msg) from None
        if note:
            say(f"Process {note.get('pid')} served here and was killed; its lock is taken over.")
        handle.truncate(0)
        json.dump({"pid": os.getpid(), "prefect": plan.page, "mlflow": plan.mlflow}, handle)
        handle.flush()
        try:
            yield
        finally:
            # Emptied, not removed: another one may have opened it, and would lock a file that nobody sees.
            handle.truncate(0)


def _note(text: str) -> Mapping[str, object]:
    try:
        found = json.loads(text)
    except ValueError:
        # Cut short by the kill that left it, or empty after a clean end.
        return {"pid": "unknown"} if text.strip() else {}
    return found if isinstance(found, dict) else {}


def require_free(option: str, port: int) -> None:
    """Check that nothing listens on a port of loopback.

    Raises
    ------
    ConfigError
        When something does; says what answers there.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            msg = f"'{option}' must be a free port; got {port}, where {_who(port)}. End it, or give another {option}."
            raise ConfigError(msg) from error


def _who(port: int) -> str:
    if fetch(f"http://127.0.0.1:{port}/api/health") == b"true":
        return "a Prefect server answers already"
    if fetch(f"http://127.0.0.1:{port}/health") == b"OK":
        return "an MLflow server answers already"
    return "another program listens"


def worker_is_online(plan: ServePlan) -> bool:
    """Tell whether a worker of the pool has sent its first sign of life."""
    found = fetch(f"{plan.api}/work_pools/{POOL}/workers/filter", b"{}")
    return found is not None and any(worker.get("status") == "ONLINE" for worker in json.loads(found))
