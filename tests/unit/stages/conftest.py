"""A workspace in miniature whose every stage has run in this process: data, warm-up, calibration, two iterations."""

import json
import shutil
from dataclasses import dataclass

import pytest
from transformers import BertConfig, BertModel, BertTokenizerFast

from rangeline.config import PipelineConfig
from rangeline.stages.run import RunFolder
from rangeline.stages.workspace import Workspace


@dataclass(frozen=True)
class Trained:
    """A workspace, its settings and its run of two iterations."""

    workspace: Workspace
    config: PipelineConfig
    run: RunFolder


@pytest.fixture(scope="session")
def trained(tiny_model_folder, tmp_path_factory):
    """Run every stage once on a tiny random model; not to be changed, but copied."""
    from tiny import ROOT, problems, write_settings

    from rangeline.stages import anchors, calibration, data
    from rangeline.stages.progress import silent
    from rangeline.stages.session import TrainingSession
    from rangeline.stages.warmup import warmup
    from rangeline.stages.workspace import open_workspace

    root = tmp_path_factory.mktemp("stages") / "w"
    (root / "data" / "raw").mkdir(parents=True)
    lines = [json.dumps(row) + "\n" for row in problems()]
    (root / "data" / "raw" / "problems.jsonl").write_text("".join(lines))
    for folder in ("rubrics", "conditions"):
        shutil.copytree(ROOT / folder, root / folder)
    model = {"model": str(tiny_model_folder)}
    write_settings(root, policy=model, judge=model)
    workspace, config = open_workspace(root)
    for stage in (data.generate, data.ingest, data.split):
        stage(workspace, config)
    for slow in (warmup, calibration.calibrate, anchors.anchors, anchors.metric_head):
        slow(workspace, config, silent)
    with TrainingSession(workspace, config, run="r") as session:
        for number in session.remaining:
            session.sample(number)
            session.judge_states(number)
            session.bound(number)
            session.cover(number)
            session.update(number)
            session.iteration(number).write_timings({"time/generate_s": 1.0})
    return Trained(workspace, config, RunFolder(workspace.runs / "r"))


@pytest.fixture(scope="session")
def solved(tiny_model_folder, tmp_path_factory):
    """Make data and start of a workspace whose labelled problems are worked out; not to be changed, but copied."""
    from tiny import ROOT, problems, write_settings

    from rangeline.stages import data
    from rangeline.stages.progress import silent
    from rangeline.stages.warmup import warmup
    from rangeline.stages.workspace import open_workspace

    root = tmp_path_factory.mktemp("solved") / "w"
    (root / "data" / "raw").mkdir(parents=True)
    shutil.copytree(ROOT / "rubrics", root / "rubrics")
    lines = [json.dumps(worked_out(row)) + "\n" for row in problems()]
    (root / "data" / "raw" / "problems.jsonl").write_text("".join(lines))
    model = {"model": str(tiny_model_folder)}
    write_settings(root, policy=model, judge=model, sampling={"max_tokens": 24}, warmup={"epochs": 30})
    workspace, config = open_workspace(root)
    for stage in (data.generate, data.ingest, data.split):
        stage(workspace, config)
    warmup(workspace, config, silent)
    return Trained(workspace, config, RunFolder(workspace.runs / "r"))


def worked_out(row):
    """Return a problem that asks for its steps, with them in its reference: `12 - 10 = 2` before `#### 2`."""
    small, large = row["prompt"].split(" + ? = ")
    answer = row["reference"]
    steps = answer if answer is None else f"{large} - {small} = {answer}\n#### {answer}"
    return {**row, "suite": "grade_school_math", "reference": steps}


@pytest.fixture
def solved_copy(solved, tmp_path):
    """Give a copy of the worked-out workspace that a test may change."""
    shutil.copytree(solved.workspace.root, tmp_path / "w")
    workspace = Workspace(tmp_path / "w")
    return Trained(workspace, solved.config, RunFolder(workspace.runs / "r"))


@pytest.fixture
def copy(trained, tmp_path):
    """Give a copy of the trained workspace that a test may change."""
    shutil.copytree(trained.workspace.root, tmp_path / "w")
    workspace = Workspace(tmp_path / "w")
    return Trained(workspace, trained.config, RunFolder(workspace.runs / "r"))


@pytest.fixture(scope="session")
def bert(tmp_path_factory):
    """Save a small random encoder whose tokens are letters."""
    folder = tmp_path_factory.mktemp("bert")
    letters = "abcdefghijklmnopqrstuvwxyz"
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{letter}" for letter in letters)]
    (folder / "vocab.txt").write_text("\n".join(tokens))
    BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)
    shape = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
    BertModel(BertConfig(vocab_size=len(tokens), max_position_embeddings=32, **shape)).save_pretrained(folder)
    return folder
