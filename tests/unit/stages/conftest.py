"""A copy of the trained workspace that a test may change, and a small encoder."""

import json
import shutil
from dataclasses import replace

import pytest
from transformers import BertConfig, BertModel, BertTokenizerFast

from rangeline.stages.run import RunFolder
from rangeline.stages.workspace import Workspace


@pytest.fixture(scope="session")
def solved(tiny_model_folder, tmp_path_factory):
    """Make data and start of a workspace whose labelled problems are worked out; not to be changed, but copied."""
    from tiny import ROOT, Trained, problems, write_settings

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
    from tiny import Trained

    shutil.copytree(solved.workspace.root, tmp_path / "w")
    workspace = Workspace(tmp_path / "w")
    return Trained(workspace, solved.config, RunFolder(workspace.runs / "r"))


@pytest.fixture
def copy(trained, tmp_path):
    """Give a copy of the trained workspace that a test may change."""
    shutil.copytree(trained.workspace.root, tmp_path / "w")
    workspace = Workspace(tmp_path / "w")
    return replace(trained, workspace=workspace, run=RunFolder(workspace.runs / "r"))


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
