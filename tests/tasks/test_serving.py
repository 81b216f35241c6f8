"""One server a workspace, free ports, and families that end: each with real sockets, locks and processes."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time

import pytest

from rangeline.errors import ConfigError, ToolError
from tasks.server import OwnOrigin, own_origins
from tasks.serving import Family, ServePlan, mlflow_command, only_server, require_free

PARENT = """
import subprocess, sys, time
command = [sys.executable, "-m", "tasks.guard", sys.executable, "-c", sys.argv[1]]
child = subprocess.Popen(command, start_new_session=True)
print(child.pid, flush=True)
time.sleep(60)
"""
FAMILY = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen([sys.executable, "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(60)"])
time.sleep(60)
"""


@pytest.fixture
def plan(tmp_path):
    """Give a plan of a workspace on ports that nobody asked for."""
    return ServePlan(root=tmp_path, project=tmp_path, prefect_port=1, mlflow_port=2)


def group_is_alive(leader):
    """Tell whether any process of a group is there."""
    try:
        os.killpg(leader, 0)
    except ProcessLookupError:
        return False
    return True


def wait_until(look, seconds=30):
    """Tell whether something becomes true in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if look():
            return True
        time.sleep(0.1)
    return False


def test_a_second_server_of_a_workspace_is_told_who_serves(plan):
    """The lock is held while the first one runs; the second is told process and addresses, and changes nothing."""
    said = []
    with only_server(plan, said.append):
        with (
            pytest.raises(ConfigError, match=rf"got process {os.getpid()} already \(Prefect http://127.0.0.1:1, "),
            only_server(plan, said.append),
        ):
            pytest.fail("two held the lock")
        assert os.getpid() == json.loads((plan.root / ".rangeline" / "serve.lock").read_text())["pid"]
    with only_server(plan, said.append):
        assert [] == said


@pytest.mark.parametrize("note", ['{"pid": 99999999, "prefect": "http://127.0.0.1:1", "mlflow": "x"}', '{"pid": 99'])
def test_the_lock_of_a_killed_server_is_taken_over_and_said(plan, note):
    """A note without a holder was left by a killed server, even if it was cut short: said, and no obstacle."""
    path = plan.root / ".rangeline" / "serve.lock"
    path.parent.mkdir()
    path.write_text(note)
    said = []
    with only_server(plan, said.append):
        assert 1 == len(said)
    assert "was killed; its lock is taken over" in said[0]


def test_a_port_in_use_is_named_with_the_option_that_changes_it():
    """The error names option, port and that another program listens there."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"'--mlflow-port' must be a free port; got {port}, where another prog"):
            require_free("--mlflow-port", port)
    require_free("--mlflow-port", port)


def test_a_child_that_ends_is_told_with_its_last_lines(plan, monkeypatch):
    """A server that ends by itself is named, with its status and its own words."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    family = Family(plan)
    family.start("mlflow", [sys.executable, "-c", "print('no space'); raise SystemExit(3)"])
    try:
        with pytest.raises(ToolError, match=r"(?s)'mlflow' must run; it ended with status 3 .*no space"):
            family.wait("mlflow", lambda: False)
    finally:
        family.end()


def test_the_family_ends_with_a_parent_that_was_killed(tmp_path):
    """Kill -9 of the parent ends guard, child and grandchild, although they ignore the polite signal."""
    parent = subprocess.Popen([sys.executable, "-c", PARENT, FAMILY], stdout=subprocess.PIPE, text=True)
    leader = int(parent.stdout.readline())
    time.sleep(1.0)
    assert group_is_alive(leader)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    assert wait_until(lambda: not group_is_alive(leader))


def test_the_children_talk_to_this_server_and_to_nobody_else(plan, monkeypatch):
    """A cloud key and another server's address of the environment do not reach the children; telemetry is off."""
    monkeypatch.setenv("PREFECT_API_KEY", "pnu_1")
    monkeypatch.setenv("PREFECT_API_URL", "https://elsewhere/api")
    found = plan.environment()
    assert "PREFECT_API_KEY" not in found
    assert ("http://127.0.0.1:1/api", "true") == (found["PREFECT_API_URL"], found["DO_NOT_TRACK"])


def test_mlflow_takes_loopback_names_alone(tmp_path):
    """The command names host, allowed hosts and origins, none of them a wildcard."""
    command = mlflow_command(tmp_path, 5000)
    assert "127.0.0.1" == command[command.index("--host") + 1]
    assert "127.0.0.1:5000,localhost:5000" == command[command.index("--allowed-hosts") + 1]
    assert not any("*" in word or "0.0.0.0" in word for word in command)


def answer_of(origin, kind="http"):
    """Return what the origin check sends for a request, or `passed` where the application is reached."""
    sent = []

    async def application(scope, receive, send):
        sent.append({"type": "passed"})

    async def send(message):
        sent.append(message)

    headers = [(b"host", b"127.0.0.1:4200")] + ([(b"origin", origin)] if origin is not None else [])
    asyncio.run(OwnOrigin(application, own_origins(4200))({"type": kind, "headers": headers}, None, send))
    return sent[0]


@pytest.mark.parametrize("origin", [None, b"http://127.0.0.1:4200", b"http://localhost:4200"])
@pytest.mark.parametrize("kind", ["http", "websocket"])
def test_own_pages_and_programs_are_let_in(origin, kind):
    """A request of the server's own page, or of a program, which names no origin, is passed on."""
    assert {"type": "passed"} == answer_of(origin, kind)


@pytest.mark.parametrize(
    "origin", [b"https://evil.example", b"null", b"http://127.0.0.1:8000", b"", b"http://localhost"]
)
def test_pages_of_other_origins_are_refused(origin):
    """A page elsewhere, on another port, or without a name is answered 403, a websocket is closed."""
    assert 403 == answer_of(origin)["status"]
    assert {"type": "websocket.close", "code": 1008} == answer_of(origin, "websocket")
