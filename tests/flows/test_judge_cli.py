"""`rangeline judge` as a person calls it."""

import json

import yaml
from judge_server import MODEL, Script, chat, serve
from typer.testing import CliRunner

from flows.cli import app

RUBRIC = (
    "name: r\ncoordinates: [{name: right, kind: choice, question: '{completion}?', options: {no: 'no', yes: 'yes'}}]"
)


def tried(tmp_path, url, *options):
    """Call `judge try` in a workspace of its own."""
    (tmp_path / "params.yaml").write_text(yaml.safe_dump({"seed": 0}))
    (tmp_path / "r.yaml").write_text(RUBRIC)
    (tmp_path / "rows.jsonl").write_text(json.dumps({"prompt": "p", "completion": "seven"}))
    sets = [f"--set=judge.{name}" for name in ("client=server", f"model={MODEL}", f"url={url}", *options)]
    files = [str(tmp_path / name) for name in ("r.yaml", "rows.jsonl")]
    return CliRunner().invoke(app, ["judge", "try", *files, "--workspace", str(tmp_path), *sets])


def test_a_rubric_is_tried_on_rows(tmp_path):
    """States, the questions that the file would take, and the price stand on the screen; no key is needed for none."""
    with serve(Script(lambda path, body, n: chat('{"verdict": "yes"}'))) as url:
        result = tried(tmp_path, url)
    assert 0 == result.exit_code, result.output
    assert "  right: yes" in result.output
    assert "1 rows of the file would take 1 questions." in result.output
    assert "Spent here:" in result.output


def test_a_server_that_is_not_there_is_one_line(tmp_path):
    """Exit 3, with the address and what to do."""
    result = tried(tmp_path, "http://127.0.0.1:9/v1", "server.attempts=1")
    assert 3 == result.exit_code
    assert "'judge.url' must be a server that answers; got 'unreachable'" in result.output
