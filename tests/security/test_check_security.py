"""The audit of pinned packages: what was not looked up is never called clean."""

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CLEAN, VULNERABLE, UNCHECKED = 0, 1, 3


@pytest.fixture(scope="module")
def audit():
    """Load the script, which lies outside of every package."""
    spec = importlib.util.spec_from_file_location("check_security", ROOT / ".ci" / "check_security.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GOOD = {"name": "a", "version": "1", "vulns": []}
BAD = {"name": "b", "version": "2", "vulns": [{"id": "PYSEC-1", "fix_versions": ["3"]}]}
SKIPPED = {"name": "c", "skip_reason": "Dependency not found on PyPI"}


@pytest.mark.parametrize(
    ("listed", "code", "words"),
    [
        ([GOOD], CLEAN, "1 packages, no known advisory"),
        ([GOOD, BAD], VULNERABLE, "b 2: PYSEC-1, fixed in 3"),
        ([GOOD, SKIPPED], UNCHECKED, "NOT CHECKED: no advisories could be had for 1 of 2 packages (c)"),
        ([BAD, SKIPPED], VULNERABLE, "NOT CHECKED"),
        ([], UNCHECKED, "NOT CHECKED: the list of packages is empty"),
    ],
)
def test_the_verdict_tells_vulnerable_unchecked_and_clean_apart(audit, listed, code, words):
    """A vulnerable package is 1, one without an answer 3, and 0 means that each was looked up."""
    got, lines = audit.verdict({"dependencies": listed})
    assert code == got
    assert words in "\n".join(lines)


def test_a_service_out_of_reach_is_said(audit, tmp_path, capsys):
    """A tool that writes no report, as without a network, makes the check end with 3 and say why."""
    tool = tmp_path / "tool"
    tool.write_text(f"#!{sys.executable}\nraise SystemExit('no network')\n")
    tool.chmod(0o755)
    assert UNCHECKED == audit.main(str(tool), ROOT / "constraints.txt")
    assert "NOT CHECKED: the advisory service could not be reached" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["constraints.txt", ".ci/requirements-security.txt", "requirements-vllm.txt"])
def test_every_requirement_is_pinned(name):
    """Each line names one exact version, from the index: no range, no address, no folder."""
    lines = [line.partition("#")[0].strip() for line in (ROOT / name).read_text().splitlines()]
    for line in filter(None, lines):
        assert len(line.split("==")) == 2, line
        assert "://" not in line
