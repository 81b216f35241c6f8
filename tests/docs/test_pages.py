"""Pages that must keep up with the code: errors, exit codes, variables, and a site that builds."""

import inspect
import re
import subprocess
import sys
from html.parser import HTMLParser

import pytest
from tiny import ROOT

from rangeline import errors

CLASSES = [
    item
    for _, item in inspect.getmembers(errors, inspect.isclass)
    if issubclass(item, errors.RangelineError) and item.__module__ == errors.__name__
]
PAGE = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
ABSTRACT = ("RangelineError", "BadInputError")


def test_every_class_has_a_section_and_no_section_is_left_over():
    """The page explains the error tree, all of it and nothing else."""
    assert {item.__name__ for item in CLASSES} == set(SECTIONS)


@pytest.mark.parametrize("name", sorted(set(SECTIONS) - set(ABSTRACT)))
def test_a_section_has_cause_and_fix(name):
    """Whoever meets an error finds why it came and what to do."""
    assert re.search(r"\*\*Cause\.\*\* \S+", SECTIONS[name])
    assert re.search(r"\*\*Fix\.\*\* \S+", SECTIONS[name])


def test_exit_codes_are_those_of_the_classes():
    """The table of exit codes names a class, or its base, beside the code that it has."""
    text = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| (\d+) \| [^|]+ \| ([^|]*) \|$", text, re.MULTILINE))
    for item in CLASSES:
        if item is not errors.RangelineError:
            told = rows[str(item.exit_code)]
            assert any(f"[{base.__name__}]" in told for base in item.__mro__), item


def test_every_variable_of_ours_is_listed():
    """A variable that the code reads and starts with our name stands in the table."""
    text = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    sources = [path for room in ("rangeline", "tasks", "flows") for path in (ROOT / room).rglob("*.py")]
    inner = {"RANGELINE_HOME", "RANGELINE_POLICY_SOCKET", "RANGELINE_SYNC_ROOT"}
    read = {
        name
        for path in sources
        for name in re.findall(r"[\"'](RANGELINE_[A-Z_]+)[\"']", path.read_text(encoding="utf-8"))
    }
    assert set() == {name for name in read - inner if f"`{name}`" not in text}


class Assets(HTMLParser):
    """Collect what a page loads."""

    def __init__(self):
        super().__init__()
        self.loaded = []

    def handle_starttag(self, tag, attrs):
        """Keep addresses of scripts, styles, frames and pictures."""
        values = dict(attrs)
        if tag in ("script", "img", "iframe"):
            self.loaded.append(values.get("src") or "")
        elif tag == "link" and values.get("rel") in ("stylesheet", "preload"):
            self.loaded.append(values.get("href") or "")


@pytest.mark.slow
def test_the_site_builds_strictly_and_loads_nothing_from_outside(tmp_path):
    """No link is broken, and a page is read without the network."""
    process = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", tmp_path / "site"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert 0 == process.returncode, process.stdout + process.stderr
    pages = sorted((tmp_path / "site").glob("*.html"))
    assert len(pages) > 20
    for page in pages:
        assets = Assets()
        assets.feed(page.read_text(encoding="utf-8"))
        assert [] == [item for item in assets.loaded if item.startswith(("http", "//"))], page.name
