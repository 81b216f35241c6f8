"""`rangeline doctor`, `init`, `estimate`, and the manners that all commands share."""

import json

import numpy as np
from typer.testing import CliRunner

from flows.cli import app
from flows.cli_lineage import emit
from flows.cli_manners import say, say_result, take_manner


def said(*arguments):
    """Return exit code, standard output and standard error."""
    result = CliRunner().invoke(app, [str(item) for item in arguments], env={"COLUMNS": "160", "TERM": "dumb"})
    return result.exit_code, result.stdout, result.stderr


def test_a_new_workspace_is_made_looked_at_and_estimated(tmp_path, tiny_model_folder):
    """Three commands lead from nothing to what a run takes, as JSON where a program asks."""
    root = tmp_path / "mine"
    code, out, err = said("init", root, "--model", tiny_model_folder, "--yes")
    assert 0 == code, err
    assert f"rangeline demo -w {root}" in out
    code, out, err = said("--json", "doctor", "-w", root)
    findings = json.loads(out)["findings"]
    assert {"ok", "note"} >= {item["state"] for item in findings if item["name"] not in ("disk", "packages")}
    code, out, err = said("--json", "estimate", "-w", root, "--set", "train.iterations=1")
    assert 0 == code, err
    assert json.loads(out)["rollouts"]["train"] > 0


def test_an_estimate_that_does_not_fit_exits_with_2(tmp_path, tiny_model_folder):
    """The table is shown, then the reason, and nothing was started."""
    root = tmp_path / "mine"
    said("init", root, "--model", tiny_model_folder, "--yes")
    code, out, err = said("estimate", "-w", root, "--set", "intervals.alpha=0.001")
    assert 2 == code
    assert "memory in all" in out
    assert "the calibration pool must hold 999 prompts" in err


def test_an_error_is_two_lines(tmp_path):
    """What is wrong, then the class and where it is explained; no traceback."""
    code, _, err = said("doctor", "-w", tmp_path)
    assert 2 == code
    lines = err.strip().splitlines()
    assert 2 == len(lines), err
    assert lines[0].startswith("error: ")
    assert lines[1].startswith("ConfigError is explained in docs/errors.md")


def test_debug_shows_the_traceback(tmp_path):
    """With --debug the error itself leaves the command."""
    result = CliRunner().invoke(app, ["doctor", "-w", str(tmp_path), "--debug"])
    assert "ConfigError" == type(result.exception).__name__


def test_mistyped_commands_and_options_are_suggested():
    """A name near a known one is answered with that one."""
    assert "Did you mean 'estimate'?" in said("estimte")[2]
    assert "--workspace" in said("doctor", "--workspac", ".")[2]


def spoken(as_json, speak, capsys):
    """Return what one way of speaking leaves on standard output and standard error."""
    take_manner(verbose=False, as_json=as_json)
    try:
        speak()
    finally:
        take_manner(verbose=False, as_json=False)
    return capsys.readouterr()


def test_a_result_is_lines_or_one_object(capsys, tmp_path):
    """A person gets the text, a program one JSON object, in which what is not known is null and never 0."""
    value = {"folder": tmp_path, "mean": float("nan"), "counts": (np.int64(3), np.float64(0.5))}
    assert "three\n" == spoken(False, lambda: say_result(value, "three"), capsys).out
    out = spoken(True, lambda: say_result(value, "three"), capsys).out
    assert {"folder": str(tmp_path), "mean": None, "counts": [3, 0.5]} == json.loads(out)
    assert 1 == out.count("\n")


def test_words_for_people_leave_a_programs_output_alone(capsys):
    """With --json a line for people goes to standard error."""
    said = spoken(True, lambda: say("hello"), capsys)
    assert ("", "hello\n") == (said.out, said.err)


def test_an_export_of_many_lines_is_one_object_a_line(capsys, tmp_path):
    """With --json a document that is written over many lines becomes one, and events stay one a line."""
    take_manner(verbose=False, as_json=True)
    try:
        emit('{\n "a": 1\n}\n', None)
        emit('{"b": 2}\n{"c": 3}\n', None)
        emit("text", tmp_path / "file")
    finally:
        take_manner(verbose=False, as_json=False)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [{"a": 1}, {"b": 2}, {"c": 3}, {"file": str(tmp_path / "file")}] == lines
    assert "text" == (tmp_path / "file").read_text()


def test_init_gives_numbers_to_a_program(tmp_path, tiny_model_folder):
    """Pools, what is in none, alpha and limits, in one object."""
    code, out, err = said("--json", "init", tmp_path / "mine", "--model", tiny_model_folder, "--yes")
    assert 0 == code, err
    found = json.loads(out)
    assert 90 == sum(found["prompts"].values()) + found["left_out"]
    assert found["limits"]


def test_a_run_never_pauses_where_nobody_can_answer(tmp_path, tiny_model_folder, monkeypatch):
    """Without a Prefect page of a server that lasts, pausing is refused before anything starts."""
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    root = tmp_path / "mine"
    said("init", root, "--model", tiny_model_folder, "--yes")
    code, _, err = said("train", "-w", root, "--set", "train.on_alarm=pause")
    assert 2 == code
    assert "'PREFECT_API_URL' must name a Prefect server with train.on_alarm=pause" in err
