"""The stage command: usage, exit codes, one-line errors and progress lines."""

import os
import subprocess
import sys

import pytest

from rangeline.stages.__main__ import LineProgress, main

ROW = '{"prompt_id": "a", "prompt": "1 + 1", "suite": "reasoning_gym", "reference": "2"}\n'


def _command(folder, *arguments):
    command = [sys.executable, "-m", "rangeline.stages", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=dict(os.environ))


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Stand in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_unknown_stage_exits_with_usage(tmp_path):
    """A stage that does not exist exits 2 and lists those that do."""
    result = _command(tmp_path, "nonsense")
    assert (2, "") == (result.returncode, result.stdout)
    assert (
        "usage: python -m rangeline.stages {generate,ingest,split,warmup,calibrate,anchors,metric_head}\n"
        == result.stderr
    )


@pytest.mark.parametrize("arguments", [[], ["ingest", "split"], ["INGEST"], ["--help"], [""]])
def test_anything_but_one_stage_is_usage(here, capsys, arguments):
    """No stage, two stages and other spellings exit 2 with the usage line."""
    assert 2 == main(arguments)
    assert capsys.readouterr().err.startswith("usage: ")


def test_folder_without_settings_exits_with_one_line(tmp_path):
    """A folder that is no workspace exits 2 with one line on standard error and no traceback."""
    result = _command(tmp_path, "ingest")
    assert (2, "", 1) == (result.returncode, result.stdout, len(result.stderr.splitlines()))
    assert result.stderr.startswith("error: ConfigError: Settings file '")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("sede: 1\n", "'sede' is not known"),
        ("a: [\n", "must be YAML"),
        ("- 1\n", "must hold a mapping"),
        ("intervals: {alpha: 2}\n", "'intervals.alpha' is not valid"),
        ("seed: 0\n", "'data' must name generators, benchmarks, files or a world"),
        ("data: {files: [rows.jsonl]}\n", "must lie in"),
        ("data: {files: [data/raw/rows.jsonl]}\n", "must be a file that exists"),
    ],
)
def test_bad_workspace_is_one_line(here, capsys, settings, message):
    """Settings or data that cannot be used exit 2, with one line that starts with `error: `."""
    (here / "params.yaml").write_text(settings)
    assert 2 == main(["ingest"])
    said = capsys.readouterr().err
    assert (True, 1, True) == (said.startswith("error: "), said.count("\n"), message in said)


@pytest.mark.parametrize("stage", ["split", "anchors", "warmup"])
def test_stage_before_its_input_is_one_line(here, capsys, stage):
    """A stage whose input was not made exits 2 with one line that says what to do."""
    (here / "params.yaml").write_text("data: {files: [data/raw/rows.jsonl]}\n")
    assert 2 == main([stage])
    said = capsys.readouterr().err
    assert (1, True) == (said.count("\n"), "must exist; got no" in said)


def test_calibrating_without_its_models_is_one_line(here, capsys):
    """Calibration without rubric, judge or starting policy exits 2 with one line and no traceback."""
    (here / "params.yaml").write_text("data: {files: [data/raw/rows.jsonl]}\n")
    assert 2 == main(["calibrate"])
    said = capsys.readouterr().err
    assert (True, 1) == (said.startswith("error: "), said.count("\n"))


def test_good_stage_exits_with_zero(here, capsys):
    """A stage that succeeds exits 0 and writes its manifest."""
    (here / "params.yaml").write_text("data: {files: [data/raw/rows.jsonl]}\n")
    (here / "data" / "raw").mkdir(parents=True)
    (here / "data" / "raw" / "rows.jsonl").write_text(ROW)
    assert (0, 0) == (main(["generate"]), main(["ingest"]))
    assert (here / "data" / "prompts" / "manifest.json").is_file()
    assert "" == capsys.readouterr().err


def test_row_error_keeps_its_place(here, capsys):
    """The line of a bad row names file, row and field."""
    (here / "params.yaml").write_text("data: {files: [data/raw/rows.jsonl]}\n")
    (here / "data" / "raw").mkdir(parents=True)
    (here / "data" / "raw" / "rows.jsonl").write_text(ROW + ROW)
    assert 2 == main(["ingest"])
    assert "'prompt_id' must be unique (row 1 has it too); got 'a' (rows.jsonl, row 2)" in capsys.readouterr().err


def test_progress_is_one_word_label_done_and_total(capsys):
    """A progress line has four words, whatever the label."""
    LineProgress()("sample source", 3, 3)
    assert "progress sample_source 3 3\n" == capsys.readouterr().out


def test_progress_is_sparse_but_tells_the_end(capsys):
    """Of many fast steps the first and the last are told, for each label by itself."""
    progress = LineProgress()
    for label in ("a", "b"):
        for done in range(1, 101):
            progress(label, done, 100)
    expected = [f"progress {label} {done} 100" for label in ("a", "b") for done in (1, 100)]
    assert expected == capsys.readouterr().out.splitlines()
