"""Laws of starting and ending a server, where vLLM itself is not needed."""

import os
import sys
import time
from pathlib import Path

import pytest

from rangeline.errors import ConfigError, RolloutError
from rangeline.rollout.vllm_server import ServerOptions, VllmServer, vllm_python


def options(folder):
    """Return options of a server that cannot start: there is no model."""
    return ServerOptions(model=folder / "model", sync_root=folder / "root")


def test_a_missing_environment_names_the_command_that_makes_it(monkeypatch, tmp_path):
    """Without vLLM's environment the error says how to build one, or how to name another."""
    monkeypatch.setenv("RANGELINE_VLLM_PYTHON", str(tmp_path / "no" / "python"))
    with pytest.raises(ConfigError, match=r"vLLM's environment must be there; got no .* Run 'make vllm'"):
        vllm_python()


def test_a_server_that_ends_at_once_shows_its_last_lines(monkeypatch, tmp_path):
    """An interpreter without vLLM ends with a traceback, which is in the message and in the log; nothing is left."""
    monkeypatch.setenv("RANGELINE_VLLM_PYTHON", sys.executable)
    told = []
    with pytest.raises(RolloutError, match=r"(?s)must start; it ended with status 1.*PackageNotFoundError"):
        VllmServer.start(
            options(tmp_path), log=tmp_path / "log", progress=lambda done, total: told.append((done, total))
        )
    assert (0, 900) == told[0]
    assert "PackageNotFoundError" in (tmp_path / "log").read_text()


@pytest.fixture
def sleeper(monkeypatch, tmp_path):
    """Name an interpreter that never serves, has a child, and says its number in the log."""
    script = tmp_path / "python"
    script.write_text("#!/bin/sh\nsleep 600 &\necho child $!\nwait\n")
    script.chmod(0o755)
    monkeypatch.setenv("RANGELINE_VLLM_PYTHON", str(script))
    return tmp_path / "log"


def is_running(pid):
    """Tell whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_server_that_does_not_answer_in_time_is_ended_with_its_family(sleeper, tmp_path):
    """Given up after the time allowed: the error says so, and its child process is gone too."""
    with pytest.raises(RolloutError, match=r"must answer within 2 s; got nothing at http://127.0.0.1"):
        VllmServer.start(options(tmp_path), log=sleeper, timeout_s=2)
    child = int(sleeper.read_text().split()[1])
    deadline = time.monotonic() + 5
    while is_running(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_running(child)


def test_the_servers_environment_holds_none_of_ours(sleeper, tmp_path, monkeypatch):
    """Neither our search path nor our thread limits reach the server; its only foreign module is the worker's."""
    script = Path(os.environ["RANGELINE_VLLM_PYTHON"])
    script.write_text('#!/bin/sh\necho "path=$PYTHONPATH threads=$OMP_NUM_THREADS"\nexit 3\n')
    monkeypatch.setenv("PYTHONPATH", "/ours")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    with pytest.raises(RolloutError, match="ended with status 3"):
        VllmServer.start(options(tmp_path), log=sleeper)
    assert sleeper.read_text().endswith("worker_side threads=\n")
