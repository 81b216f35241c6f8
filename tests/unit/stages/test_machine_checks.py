"""Findings about a machine: what is broken says so, and every finding that is not fine says how to mend it."""

import importlib
import socket
from importlib.metadata import version

import pytest

from rangeline.stages.machine_checks import (
    GIB,
    check_disk,
    check_machine,
    check_memory,
    check_port,
    check_python,
    check_tools,
    conflicts,
)


@pytest.mark.parametrize(("running", "state"), [((3, 10), "broken"), ((3, 11), "ok"), ((3, 13), "note")])
def test_only_an_old_python_is_broken(running, state):
    """Below 3.11 nothing runs, above it nothing was tested."""
    assert state == check_python(running).state


def test_whatever_is_not_fine_has_a_fix(tmp_path):
    """No finding about this machine leaves a person without the next step."""
    findings = check_machine(tmp_path)
    assert [] == [item for item in findings if item.state != "ok" and not item.fix]
    assert {"Python", "GPU", "memory", "disk", "tools"} <= {item.name for item in findings}


def installed(folder, name, requires):
    """Lay an installed package's metadata into a folder."""
    place = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    place.mkdir()
    lines = "".join(f"Requires-Dist: {item}\n" for item in requires)
    (place / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{lines}")


def test_a_version_that_does_not_go_together_is_named(tmp_path, monkeypatch):
    """A dependency of a dependency that wants another version is found, with who wants it; extras are not asked for."""
    needs = ["hub-of-test", "numpy>=1", "absent-extra; extra == 'more'"]
    installed(tmp_path, "root-of-test", needs)
    installed(tmp_path, "hub-of-test", ["numpy>=99", "not-there-at-all"])
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    expected = [
        ("not-there-at-all", "not installed, needs any version, wanted by hub-of-test"),
        ("numpy", f"{version('numpy')} is installed, needs >=99, wanted by hub-of-test"),
    ]
    assert expected == [item for item in conflicts("root-of-test") if item[0] in ("numpy", "not-there-at-all")]


def test_a_project_that_is_not_installed_is_told():
    """Where nothing says what is needed, that is the finding."""
    assert [("nosuchproject", "not installed, needs any version")] == conflicts("nosuchproject")


def test_a_port_in_use_is_a_note_with_another_port():
    """A port that something listens on is told with the option that takes another one."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        found = check_port("MLflow page", port)
    assert "note" == found.state
    assert f"serve mlflow --port {port + 10}" in found.fix


def test_little_memory_is_a_note():
    """What is left is stated in GiB."""
    assert ("note", "1.0 GiB free") == (check_memory(GIB).state, check_memory(GIB).says)


def test_a_folder_to_be_made_is_on_its_parents_disk(tmp_path):
    """Room is that of the nearest parent that exists."""
    assert str(tmp_path.resolve()) in check_disk("disk", tmp_path / "a" / "b").says


def test_an_absent_program_is_named():
    """Only programs that are not on the path are listed to install."""
    assert "not found: nosuchprogram" == check_tools(("sh", "nosuchprogram")).says
