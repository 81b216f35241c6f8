"""The judge in a workspace: a server's key and price, verdicts that travel with the data, drift, report and trial."""

import json

import pytest
from judge_server import MODEL, Script, chat, serve

from rangeline.config import build_config
from rangeline.errors import CalibrationError, ConfigError, DataContractError, JudgeDriftError
from rangeline.judge.asking import ask_all
from rangeline.judge.cache import VerdictCache
from rangeline.judge.client import OptionRequest, ScriptedJudge
from rangeline.judge_config import JudgeConfig, JudgeLimitsConfig
from rangeline.stages.judge_clients import open_client, read_verdicts, verdict_store
from rangeline.stages.judge_records import require_same_judge, write_verdicts
from rangeline.stages.judge_report import report_judge
from rangeline.stages.judge_trial import try_rubric
from rangeline.stages.judging import open_judge
from rangeline.stages.progress import silent
from rangeline.stages.session import TrainingSession
from rangeline.stages.workspace import Workspace

RUBRIC = """
name: r
coordinates:
  - {name: right, kind: choice, question: "{prompt} {completion} Right?", options: {no: "no", yes: "yes"}}
  - {name: agreement, kind: agreement, cuts: [0.6]}
"""


def changed(config, **over):
    """Return settings with some of the judge's replaced."""
    return config.model_copy(update={"judge": config.judge.model_copy(update=over)})


def server(url, **over):
    """Return settings of a judge behind a server."""
    return JudgeConfig(client="server", model=MODEL, url=url, **over)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"client": "server"}, "judge.url must be an http or https address"),
        ({"client": "server", "url": "http://user:key@host/v1"}, "must hold no user or password"),
        ({"ask": "structured"}, "needs judge.client=server"),
        ({"client": "server", "url": "http://x/v1", "budget": {"money": 1}}, "judge.budget.prices must hold"),
    ],
)
def test_settings_that_cannot_work_are_refused(values, message):
    """A server without an address, a key in it, money without a price: refused before anything is opened."""
    with pytest.raises(ConfigError, match=message):
        build_config({"judge": values}, source="test")


def test_the_key_comes_from_the_environment_alone(tmp_path):
    """The variable that the settings name must be set; its value goes to the server and nowhere else."""
    script = Script(lambda path, body, n: chat('{"verdict": "yes"}'))
    with serve(script) as url:
        config = server(url, api_key_env="JUDGE_KEY")
        with pytest.raises(ConfigError, match="Environment variable 'JUDGE_KEY' must hold the judge's key"):
            open_client(Workspace(tmp_path), config, environ={})
        open_client(Workspace(tmp_path), config, environ={"JUDGE_KEY": "sk-secret"})
    assert {"Bearer sk-secret"} == {headers.get("Authorization") for _, _, headers in script.calls}
    assert b"sk-secret" not in verdict_store(Workspace(tmp_path), config).read_bytes()


def test_workspaces_may_share_their_verdicts(tmp_path):
    """A named file is one for all who name it; none is the workspace's own."""
    shared = JudgeConfig(cache=str(tmp_path / "shared.sqlite"))
    assert 1 == len({verdict_store(Workspace(tmp_path / name), shared) for name in ("a", "b")})
    assert 2 == len({verdict_store(Workspace(tmp_path / name), JudgeConfig()) for name in ("a", "b")})


def test_verdicts_travel_with_the_calibration(tmp_path):
    """What one run was told is a file of the versioned data, and another run takes it in without asking."""
    requests = [OptionRequest(system="", question=text, options=("no", "yes")) for text in "ab"]
    judge, first = ScriptedJudge(lambda _: (-1.0, -2.0)), VerdictCache(tmp_path / "first.sqlite")
    ask_all(requests, judge, first)
    write_verdicts(tmp_path, requests, judge.digest, first)
    other, second = ScriptedJudge(lambda _: (-9.0, -9.0)), VerdictCache(tmp_path / "second.sqlite")
    second.put_many(read_verdicts(tmp_path))
    assert {(-1.0, -2.0)} == {answer.values for answer in ask_all(requests, other, second).values()}
    assert [] == other.asked
    assert {} == read_verdicts(tmp_path / "absent")


def test_calibration_keeps_verdicts_and_a_canary(copy):
    """Both are in the versioned folder and its manifest, and a new file of verdicts is filled from them."""
    folder = copy.workspace.calibration
    assert len(json.loads((folder / "canary.json").read_text())["requests"]) == 16
    copy.workspace.verdicts.unlink()
    judge = open_judge(copy.workspace, copy.config.judge)
    known = read_verdicts(folder)
    assert known == judge.cache.get_many(list(known))
    assert "judge_flips" in json.loads((folder / "manifest.json").read_text())["facts"]


def test_a_judge_that_drifted_stops_the_run_at_its_start(copy):
    """The canary's answers at calibration differ from those now: no iteration is begun."""
    path = copy.workspace.calibration / "canary.json"
    canary = json.loads(path.read_text())
    canary["values"] = [row[::-1] if row[0] != row[1] else [0.0, -9.0] for row in canary["values"]]
    path.write_text(json.dumps(canary))
    config = copy.config.model_copy(update={"train": copy.config.train.model_copy(update={"iterations": 3})})
    with pytest.raises(JudgeDriftError, match=r"verdicts turned .* \(at the start of run 'r'\)"):
        TrainingSession(copy.workspace, config, run="r").__enter__()


def test_a_judge_that_drifts_on_the_way_has_no_part_in_the_last_update(copy):
    """At the last iteration the canary is asked again, before the update."""
    config = copy.config.model_copy(update={"train": copy.config.train.model_copy(update={"iterations": 3})})
    with TrainingSession(copy.workspace, config, run="r") as session:
        session.sample(3)
        path = copy.workspace.calibration / "canary.json"
        canary = json.loads(path.read_text())
        canary["values"] = [row[::-1] if row[0] != row[1] else [0.0, -9.0] for row in canary["values"]]
        path.write_text(json.dumps(canary))
        with pytest.raises(JudgeDriftError, match=r"\(at the end of run 'r'\)"):
            session.judge_states(3)


def test_a_calibration_without_a_canary_is_made_again(tmp_path):
    """Nothing to compare with is an error that says what to do."""
    with pytest.raises(CalibrationError, match="must keep the judge's canary"):
        require_same_judge(tmp_path, ScriptedJudge(lambda _: (0.0,)), JudgeLimitsConfig(), "now")


def test_the_report_measures_every_coordinate(copy):
    """JSON, Markdown and HTML with information, flips and attacks; free text of a random model is refused."""
    result = report_judge(copy.workspace, copy.config, silent, rows=96)
    written = json.loads((result.folder / "report.json").read_text())
    assert ["correct", "agreement", "well_formed"] == [item["name"] for item in written["coordinates"]]
    asked = written["coordinates"][0]
    assert {"order", "position", "repeat"} == set(asked["flips"])
    assert 0.0 == asked["flips"]["repeat"][0]
    assert 9 == len(asked["injections"])
    assert (16, 0) == (written["free_text"][0]["asked"], written["free_text"][0]["valid_json"])
    assert any("refuse free text" in line for line in written["gate"])
    assert "Reliability of the judge" in (result.folder / "report.html").read_text()


def test_a_report_needs_labelled_rollouts(copy):
    """Before calibration there is nothing to compare with."""
    (copy.workspace.calibration / "manifest.json").unlink()
    with pytest.raises(CalibrationError, match="Labelled rollouts must exist"):
        report_judge(copy.workspace, copy.config, silent)


def test_a_synthetic_judge_has_no_report(toy):
    """It looks the truth up, and nobody asks it."""
    workspace, config = toy
    with pytest.raises(ConfigError, match="got 'synthetic', which is never asked"):
        report_judge(workspace, config, silent)


def trial(tmp_path, reply, lines, **options):
    """Try the rubric on rows with a judge behind a scripted server."""
    (tmp_path / "r.yaml").write_text(RUBRIC)
    (tmp_path / "rows.jsonl").write_text("\n".join(json.dumps(line) for line in lines))
    with serve(Script(reply)) as url:
        config = build_config({"judge": server(url).model_dump()}, source="test")
        return try_rubric(Workspace(tmp_path), config, tmp_path / "r.yaml", tmp_path / "rows.jsonl", **options)


def test_a_trial_says_states_reasons_and_the_cost_of_all(tmp_path):
    """A few rows are judged; a failed one says why; the questions of the whole file are counted, not asked."""

    def reply(path, body, n):
        text = body["messages"][-1]["content"]
        return chat("I cannot judge that.") if "odd" in text else chat('{"verdict": "yes"}')

    lines = [{"prompt": "p", "completion": text, "answer": "7"} for text in ("fine", "odd", "good", "other")]
    found = trial(tmp_path, reply, lines, rows=2)
    assert {"right": "yes", "agreement": ">=0.6"} == found.rows[0].levels
    assert "missing (right: refused)" == found.rows[1].levels["right"]
    assert (2, 4, 4) == (len(found.rows), found.num_rows_of_file, found.num_questions_of_file)
    assert found.spent is not None
    assert found.spent.calls >= 2


def test_rows_that_cannot_be_read_are_refused(tmp_path):
    """The line that is no row is named."""
    with pytest.raises(DataContractError, match=r"must be JSON objects with texts .*line 1"):
        trial(tmp_path, lambda path, body, n: chat("yes"), [{"prompt": "p"}])
    with pytest.raises(DataContractError, match="must hold at least one row"):
        trial(tmp_path, lambda path, body, n: chat("yes"), [])
