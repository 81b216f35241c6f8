"""Every code block of the documentation: Python runs, commands exist with these options, settings are settings."""

import importlib.util
import json
import re
import shlex
from pathlib import Path

import click
import pytest
import typer
import yaml
from tiny import ROOT

from flows.cli import app
from rangeline.config import PipelineConfig, merge, parse_assignment
from rangeline.judge.rubric import parse_rubric

PAGES = sorted([*ROOT.glob("docs/*.md"), *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "data/README.md"))])
BLOCK = re.compile(r"^```(?P<kind>[^\n]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
KINDS = ("python", "{.python .sketch}", "shell", "yaml", "json", "text")
OUTSIDE = ("prefect", "export", "dvc", "pip", "docker", "kubectl", "jupyter")
"""First words that are other tools' or the shell's own."""


def blocks(*kinds):
    """Return (page and line, body) of every block of these kinds."""
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for match in BLOCK.finditer(text):
            if match["kind"] in kinds:
                line = text.count("\n", 0, match.start()) + 1
                found.append(pytest.param(match["body"], id=f"{page.relative_to(ROOT)}:{line}"))
    return found


def test_every_block_says_what_it_is():
    """A block without a known kind would be checked by nobody."""
    unknown = {
        f"{page.name}: {match['kind'] or 'no kind'}"
        for page in PAGES
        for match in BLOCK.finditer(page.read_text(encoding="utf-8"))
        if match["kind"] not in KINDS
    }
    assert set() == unknown


@pytest.mark.parametrize("body", blocks("python"))
def test_python_runs(body, tmp_path, monkeypatch):
    """A Python block runs by itself, its assertions included."""
    monkeypatch.chdir(tmp_path)
    exec(compile(body, "block", "exec"), {})


@pytest.mark.parametrize("body", blocks("{.python .sketch}"))
def test_a_sketch_imports_what_exists(body):
    """A Python block that needs what is not installed here at least names things of ours that exist."""
    for module, names in re.findall(r"^from (rangeline\S+) import (.+)$", body, re.MULTILINE):
        found = importlib.import_module(module)
        assert [] == [name for name in re.split(r",\s*", names) if not hasattr(found, name)]


def commands():
    """Return every command of every shell block."""
    found = []
    for parameter in blocks("shell"):
        for number, line in enumerate(parameter.values[0].replace("\\\n", " ").splitlines()):
            for part in line.split(" #")[0].split(";"):
                words = shlex.split(part, comments=True)
                while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
                    words = words[1:]
                if words:
                    found.append(pytest.param(words, id=f"{parameter.id}+{number}"))
    return found


def check_ours(words):
    """Parse the words as the command line does, short of running the command; settings must be known."""
    command = typer.main.get_command(app)
    if words[0] in {option for parameter in command.params for option in parameter.opts}:
        return  # an option that is a command of its own, such as completion
    context = command.make_context("rangeline", list(words))
    while isinstance(command, click.Group) or hasattr(command, "commands"):
        name, command, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        context = command.make_context(name, rest, parent=context)
    for text in context.params.get("assignments") or ():
        PipelineConfig.model_validate(known(parse_assignment(text)))


def known(values):
    """Lay settings over those of the project, so that a section may be given in part."""
    return merge(yaml.safe_load((ROOT / "params.yaml").read_text()), values)


@pytest.fixture
def reader(tmp_path):
    """Make the folder of somebody who reads along: a clone, and the files of their own that the pages speak of."""
    for path in ROOT.iterdir():
        (tmp_path / path.name).symlink_to(path)
    (tmp_path / "mine" / "rubrics").mkdir(parents=True)
    for name in ("rows.jsonl", "questions.jsonl", "mine/rubrics/correctness.yaml"):
        (tmp_path / name).touch()
    return tmp_path


@pytest.mark.parametrize("words", commands())
def test_commands_exist_with_these_options(words, reader, monkeypatch):
    """Names, options, arguments and settings are those of the program; make's targets are the Makefile's."""
    monkeypatch.chdir(reader)
    first = Path(words[0]).name
    if first == "rangeline":
        check_ours(words[1:])
    elif first == "make":
        targets = re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert words[1] in targets
    elif words[:2] == ["python", "-m"]:
        assert importlib.util.find_spec(words[2]) is not None
    elif first == "cp":
        assert Path(words[1]).exists()
    else:
        assert first in OUTSIDE


@pytest.mark.parametrize("body", blocks("yaml"))
def test_yaml_is_a_rubric_or_settings(body):
    """A YAML block is a rubric that can be read, or settings that the configuration takes."""
    values = yaml.safe_load(body)
    if "coordinates" in values:
        parse_rubric(body, source="block")
    else:
        PipelineConfig.model_validate(known(values))


@pytest.mark.parametrize("body", blocks("json"))
def test_json_is_a_row_of_the_data_contract(body):
    """A JSON block is a prompt row."""
    from rangeline.prompts.contract import parse_rows

    assert 1 == len(parse_rows([json.loads(line) for line in body.splitlines()], source="block"))


def test_commands_in_tables_exist():
    """Every `rangeline ...` that stands in running text or a table names a command of the program."""
    names = set(typer.main.get_command(app).commands)
    told = {
        word
        for page in PAGES
        for word in re.findall(r"`rangeline (?:--json |-v )?([a-z][a-z-]*)", page.read_text(encoding="utf-8"))
    }
    assert set() == told - names
