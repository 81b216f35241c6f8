"""A copy of the trained workspace that a test may change, and a small encoder."""

import shutil
from dataclasses import replace

import pytest
from transformers import BertConfig, BertModel, BertTokenizerFast

from rangeline.stages.run import RunFolder
from rangeline.stages.workspace import Workspace


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
