"""A prompt on which the judge fails every time: missing, counted, named, and after three draws asked no more."""

import json
import shutil

import numpy as np
import pytest
from judge_server import MODEL, Script, chat, serve
from tiny import problems, write_settings

from rangeline.lineage import digest_file
from rangeline.stages import calibration, data
from rangeline.stages.progress import silent
from rangeline.stages.quarantine import PATIENCE, count_silence, quarantined
from rangeline.stages.session import TrainingSession
from rangeline.stages.tables import read_judgments
from rangeline.stages.warmup import warmup
from rangeline.stages.workspace import open_workspace

POISON = "far-train-57-59"
ITERATIONS = 5
RUBRIC = """
name: r
coordinates:
  - {name: right, kind: choice, question: "{prompt} {completion} Right?", options: {no: "no", yes: "yes"}}
  - {name: agreement, kind: agreement, cuts: [0.6]}
"""


def reply(path, body, number):
    """Answer every question but those on the poisoned prompt, which break the server."""
    text = json.dumps(body)
    if "57 + ? = 59" in text:
        return 500, {}, {"error": "the judge broke"}, 0.0
    return chat(json.dumps({"verdict": "yes" if len(text) % 2 else "no"}))


@pytest.fixture(scope="module")
def poisoned(tiny_model_folder, tmp_path_factory):
    """Train on a judge behind a server that breaks on one prompt, in one sitting and in two; give what was seen."""
    root = tmp_path_factory.mktemp("poisoned") / "w"
    (root / "data" / "raw").mkdir(parents=True)
    (root / "rubrics").mkdir()
    (root / "rubrics" / "r.yaml").write_text(RUBRIC)
    # Two prompts to train on, so that both come in every iteration.
    rows = [row for row in problems() if row["domain"] == "near" or row["share"] != "train"]
    far = [row for row in problems() if row["domain"] == "far" and row["share"] == "train"][:8]
    (root / "data" / "raw" / "problems.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows + far))
    script = Script(reply)
    with serve(script) as url:
        server = {"concurrency": 8, "attempts": 2}
        write_settings(
            root,
            policy={"model": str(tiny_model_folder)},
            judge={"client": "server", "model": MODEL, "url": url, "rubric": "rubrics/r.yaml", "server": server},
            split={"unlabelled": {"policy": 0.7, "ratio": 0.3}},
            train={"iterations": ITERATIONS, "audit_prompts": 12},
        )
        workspace, config = open_workspace(root)
        for stage in (data.generate, data.ingest, data.split):
            stage(workspace, config)
        for slow in (warmup, calibration.calibrate):
            slow(workspace, config, silent)
        calls = {}
        for name, stops in (("whole", ()), ("sittings", (2, 4))):
            calls[name] = [
                count for stop in (*stops, ITERATIONS) for count in go_on(workspace, config, name, stop, script)
            ]
        yield workspace, calls


def go_on(workspace, config, run, until, script):
    """Train up to an iteration; return how often each iteration asked about the poisoned prompt."""
    # What is cached would hide that a question is asked; failures never are.
    shutil.rmtree(workspace.root / ".rangeline", ignore_errors=True)
    counts = []
    with TrainingSession(workspace, config, run=run) as session:
        for number in session.remaining:
            before = len([body for path, body, _ in script.calls if "57 + ? = 59" in json.dumps(body)])
            session.sample(number)
            session.judge_states(number)
            counts.append(len([body for path, body, _ in script.calls if "57 + ? = 59" in json.dumps(body)]) - before)
            session.bound(number)
            session.cover(number)
            session.update(number)
            if number == until:
                break
    return counts


def test_it_is_asked_about_in_three_draws_and_never_again(poisoned):
    """Each draw asks a bounded number of times, the fourth and later ones not at all."""
    _, calls = poisoned
    drawn = calls["whole"]
    assert all(count > 0 for count in drawn[:PATIENCE])
    assert [0, 0] == drawn[PATIENCE:]


def test_its_rewards_are_missing_and_it_is_counted(poisoned):
    """Its rollouts are missing in every iteration, in or out of quarantine, and the numbers of the run say so."""
    workspace, _ = poisoned
    for number in range(1, ITERATIONS + 1):
        folder = workspace.runs / "whole" / "iterations" / f"{number:06d}"
        shares = [read_judgments(folder / f"{share}_judgments.parquet") for share in ("policy", "ratio")]
        mine = [
            missing
            for table in shares
            for name, missing in zip(table.prompt_id_N, table.missing_N, strict=True)
            if name == POISON
        ]
        assert mine
        assert all(mine)
        metrics = json.loads((folder / "metrics.json").read_text())
        assert (1, int(number >= PATIENCE)) == (metrics["judge/silent_prompts"], metrics["judge/quarantined_prompts"])
        assert {POISON: min(number, PATIENCE)} == json.loads((folder / "quarantine.json").read_text())


def test_a_resumed_run_keeps_the_quarantine_to_the_byte(poisoned):
    """Stopped after two and after four iterations, the run asks as often and ends with the same bytes."""
    workspace, calls = poisoned
    assert calls["whole"] == calls["sittings"]
    for number in range(1, ITERATIONS + 1):
        names = ("quarantine.json", "policy_judgments.parquet", "advantages.parquet")
        folders = [workspace.runs / run / "iterations" / f"{number:06d}" for run in ("whole", "sittings")]
        for name in names:
            assert digest_file(folders[0] / name) == digest_file(folders[1] / name)


def test_one_answer_ends_the_silence():
    """A prompt that is answered once is forgotten; what was cut off counts neither way; quarantine is not left."""
    everything = np.ones(4, dtype=bool)
    ids = ("a", "a", "b", "b")
    first = count_silence({}, ids, np.array([1, 1, 1, 0], dtype=bool), everything)
    assert {"a": 1} == first
    assert {} == count_silence({"a": 2}, ids, np.array([1, 0, 0, 0], dtype=bool), everything)
    cut_off = count_silence({"a": 2}, ids, everything, np.zeros(4, dtype=bool))
    assert {"a": 2} == cut_off
    held = count_silence({"a": PATIENCE}, ids, np.zeros(4, dtype=bool), everything)
    assert frozenset({"a"}) == quarantined(held)
