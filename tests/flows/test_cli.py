"""The command line: help that teaches, and mistakes that end with one line and nothing half made."""

import json
import re
from types import SimpleNamespace

import pytest
from tiny import cli, problems
from typer.testing import CliRunner

from flows.cli import app

COMMANDS = (
    "demo",
    "prepare",
    "warmup",
    "calibrate",
    "train",
    "evaluate",
    "rescore",
    "nightly",
    "audit",
    "report",
    "serve",
)
ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


def shown(*arguments):
    """Return the exit code and the plain text of a command."""
    result = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "160", "TERM": "dumb"})
    return result.exit_code, ESCAPES.sub("", result.output)


def test_the_program_lists_its_commands_and_exit_codes():
    """The program's help names every command and what each exit code means."""
    code, text = shown("--help")
    assert code == 0
    assert all(re.search(rf"\b{name}\b", text) for name in COMMANDS)
    assert all(re.search(rf"\b{number} ", text) for number in (0, 1, 2, 3, 4, 5, 6, 130))


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_explains_itself(name):
    """The help of a command says in a sentence what it does, and explains every option and argument."""
    code, text = shown(name, "--help")
    assert code == 0
    assert re.search(r"[A-Z][^.\n]{20,}\.", text)
    lines = [line for line in text.splitlines() if re.search(r"\s--[a-z]+\s", line)]
    assert any("--workspace" in line for line in lines)
    for line in lines:
        assert re.search(r"[A-Za-z]{2,} [a-z(.-]{2,}", line.split("--", 1)[1]), line


def test_no_command_shows_help():
    """The bare program shows its help instead of doing something."""
    _, text = shown()
    assert "Usage" in text


def test_unknown_page_is_refused():
    """Only three things can be served by themselves."""
    code, text = shown("serve", "grafana")
    assert (2, "error: 'page' must be prefect, mlflow or vllm; got 'grafana'.") == (
        code,
        text.partition(" Name none")[0],
    )


def made_of(root):
    """Return what a workspace holds beside the tools' own folders."""
    own = {".dvc", ".dvcignore", ".gitignore", ".git", ".rangeline", ".prefect", "mlruns"}
    return {str(path.relative_to(root)) for path in root.rglob("*") if not own & set(path.relative_to(root).parts)}


@pytest.fixture(scope="module")
def mistakes(tiny_workspace, copied_workspace, prefect_server, tmp_path_factory):
    """Make every mistake in a workspace of its own, side by side; return what each said, and made."""
    base = tmp_path_factory.mktemp("mistakes")

    def fresh(name, rows=None, **over):
        root = tiny_workspace(base / name, **over)
        if rows is not None:
            (root / "data/raw/problems.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return root

    labelled = [row for row in problems() if row["reference"] is not None]
    wrong = [{**row, "reference": " "} if i == 4 else row for i, row in enumerate(problems())]
    plans = {
        "unknown setting": (fresh("a"), ["train", "--set", "train.iteratons=3"]),
        "value out of range": (fresh("b"), ["train", "--set", "train.iterations=0"]),
        "missing config file": (fresh("c"), ["prepare", "--config", str(base / "nowhere.yaml")]),
        "missing data file": (fresh("d", data={"files": ["data/raw/absent.jsonl"]}), ["prepare"]),
        "wrong row": (fresh("e", wrong), ["prepare"]),
        "empty pool": (fresh("f", labelled), ["prepare"]),
        "unloadable model": (fresh("g", policy={"model": "/nonexistent"}), ["warmup"]),
        "too few rows to calibrate": (copied_workspace(base / "h"), ["calibrate", "--set", "intervals.alpha=0.0001"]),
        "too few rows to train": (copied_workspace(base / "i"), ["train", "--set", "intervals.alpha=0.0001"]),
        "nothing calibrated": (fresh("j"), ["train"]),
        "unknown run": (copied_workspace(base / "k"), ["report", "nosuchrun"]),
        "nothing to audit": (copied_workspace(base / "l"), ["audit", "no-such-run"]),
    }
    before = {name: made_of(root) for name, (root, _) in plans.items()}
    found = {}
    names = list(plans)
    for pair in (names[i : i + 2] for i in range(0, len(names), 2)):  # two at a time: as many as there are cores
        running = {
            name: cli(*plans[name][1], "-w", plans[name][0], environ={"PREFECT_API_URL": prefect_server})
            for name in pair
        }
        for name, process in running.items():
            text, _ = process.communicate(timeout=240)
            new = made_of(plans[name][0]) - before[name]
            found[name] = SimpleNamespace(code=process.returncode, text=text, new=new)
    return found


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        ("unknown setting", 2, r"'train.iteratons' is not known .* Did you mean 'iterations'\?"),
        ("value out of range", 2, r"'train.iterations' is not valid: .*; got 0"),
        ("missing config file", 2, r"nowhere.yaml' must be readable; got No such file or directory"),
        ("missing data file", 2, r"absent.jsonl' must be a file that exists; got no file"),
        ("wrong row", 2, r"'reference' must .*; got ' ' \(problems.jsonl, row 5\)"),
        ("empty pool", 2, r"'policy' pool must hold at least one prompt; got 0"),
        ("unloadable model", 2, r"'model' must be a folder; got '/nonexistent'"),
        ("too few rows to calibrate", 2, r"alpha|calibration"),
        ("too few rows to train", 2, r"alpha|calibration"),
        ("nothing calibrated", 2, r"Calibration must exist before training; got no .* Run .rangeline calibrate"),
        ("unknown run", 2, r"nosuchrun"),
        ("nothing to audit", 2, r"no-such-run"),
    ],
)
def test_a_mistake_ends_with_one_line_and_its_exit_code(mistakes, name, code, message):
    """A mistake gives one line that starts with `error:`, names thing and remedy, and shows no traceback."""
    found = mistakes[name]
    assert "Traceback" not in found.text
    lines = [line for line in found.text.splitlines() if re.match(r"\W*(\[?[\d/: ]+\]?)?\s*error:", line)]
    assert len(lines) == 1, found.text
    assert re.search(message, lines[0]), lines[0]
    assert code == found.code


@pytest.mark.parametrize(
    ("name", "allowed"),
    [
        ("unknown setting", r"$^"),
        ("value out of range", r"$^"),
        ("missing config file", r"$^"),
        ("missing data file", r"dvc\.lock|data/generated(/|$)"),
        ("wrong row", r"dvc\.lock|data/generated(/|$)"),
        ("empty pool", r"dvc\.lock|data/(generated|prompts)(/|$)"),
        ("unloadable model", r"dvc\.lock|data/(generated|prompts|pools)(/|$)"),
        ("too few rows to calibrate", r"$^"),
        ("too few rows to train", r"$^"),
        ("nothing calibrated", r"$^"),
        ("unknown run", r"runs(/_evaluations(/.*)?)?$"),
        ("nothing to audit", r"$^"),
    ],
)
def test_a_mistake_leaves_nothing_half_made(mistakes, name, allowed):
    """Only whole outputs of the stages before the mistake are left: no folder of the failed stage, no partial file."""
    new = mistakes[name].new
    assert {path for path in new if not re.match(allowed, path)} == set()
    assert not [path for path in new if "partial" in path]


def test_a_changed_byte_ends_the_audit_with_5(copied_workspace, tmp_path, prefect_server):
    """`rangeline audit` of changed data exits with 5 and names file and offset."""
    root = copied_workspace(tmp_path / "work")
    path = root / "data/pools/policy.parquet"
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(bytes(content))
    process = cli("audit", "data/calibration", "-w", root, environ={"PREFECT_API_URL": prefect_server})
    text, _ = process.communicate(timeout=240)
    assert process.returncode == 5
    assert "data/pools/policy.parquet': first byte that does not match: 100 (of" in text
    assert "Traceback" not in text
