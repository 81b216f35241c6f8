"""A dvc that is killed while it writes its lock file or its cache is repeated to the same lock and the same bytes."""

import os

import pytest
from test_versioning import fill

from rangeline.errors import ToolError
from tasks.versioning import cached_original, ensure_repository, locked_outputs, reproduce

KILLER = """
import os, signal, sys

wanted, armed = os.environ.get("KILL_AFTER"), []

def hear(event, arguments):
    if armed:
        armed.clear()
        os.kill(os.getpid(), signal.SIGKILL)
    if event == "open" and wanted in str(arguments[0]) and set(str(arguments[1] or "")) & set("wxa"):
        armed.append(True)
    if event == "os.rename" and wanted in str(arguments[1]):
        armed.append(True)

if wanted:
    sys.addaudithook(hear)
"""
"""Loaded by every interpreter that finds it: kills the process at its next operation after the one that is named."""


@pytest.fixture
def kill_after(tmp_path, monkeypatch):
    """Give a function that arms the killer for an operation on a path, or disarms it."""
    folder = tmp_path / "killer"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(KILLER)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]))

    def arm(path):
        monkeypatch.setenv("KILL_AFTER", path)

    return arm


def make(folder, tmp_path):
    """Make a repository of two stages."""
    folder.mkdir()
    fill(folder)
    ensure_repository(folder, tmp_path / "remote")
    return folder


@pytest.mark.parametrize(
    "path", ["/dvc.lock", pytest.param("/files/md5/", marks=pytest.mark.slow)], ids=["lock", "cache"]
)
def test_killed_dvc_is_repeated_to_the_same_lock(path, tmp_path, kill_after):
    """Killed right after it began to write, dvc leaves half a file; the next call ends as if nothing had been."""
    calm, place = (make(tmp_path / name, tmp_path) for name in ("calm", "killed"))
    reproduce(calm, (), on_line=lambda _: None)
    reproduce(place, ("one",), on_line=lambda _: None)
    kill_after(path)
    with pytest.raises(ToolError, match=r"dvc .* must exit with 0; got -9"):
        reproduce(place, (), on_line=lambda _: None)
    kill_after("")
    if "lock" in path:
        assert (calm / "dvc.lock").read_text() != (place / "dvc.lock").read_text()
    reproduce(place, (), on_line=lambda _: None)
    assert (calm / "dvc.lock").read_bytes() == (place / "dvc.lock").read_bytes()
    assert all(cached_original(place, md5) is not None for md5 in locked_outputs(place).values())
