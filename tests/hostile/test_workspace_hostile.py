"""Names and files that must not lead out of a workspace, nor overwrite one another."""

import pytest
import yaml

from rangeline.errors import ConfigError, RangelineError
from rangeline.stages.run import resolve_checkpoint
from rangeline.stages.workspace import Workspace, choose_workspace

WAYS_OUT = [
    "../x",
    "..",
    ".",
    "",
    "/etc",
    "a/b",
    "a\\b",
    "a\x00b",
    "-x",
    ".hidden",
    "a b",
    "a\n",
    "é",
    "x" * 81,
    "~root",
]


@pytest.fixture
def root(tmp_path):
    """Give a workspace with settings and a rubric."""
    folder = tmp_path / "home"
    (folder / "rubrics").mkdir(parents=True)
    (folder / "rubrics" / "arithmetic.yaml").write_text("name: mine\n")
    (folder / "params.yaml").write_text("seed: 0\n")
    return folder


@pytest.mark.parametrize("name", WAYS_OUT)
def test_run_name_cannot_leave_the_runs(tmp_path, name):
    """A run name with separators, dots first, blanks or other characters is refused as it was given."""
    with pytest.raises(ConfigError, match="Run name must be letters, digits"):
        Workspace(tmp_path).run(name)


@pytest.mark.parametrize("name", ["../other", "/etc", "../../other"])
def test_checkpoint_outside_the_workspace_is_refused(tmp_path, name):
    """A policy folder outside the workspace is not taken, although it looks like one."""
    root = tmp_path / "a" / "home"
    root.mkdir(parents=True)
    (tmp_path / "a" / "other" / "policy").mkdir(parents=True)
    (tmp_path / "other" / "policy").mkdir(parents=True)
    with pytest.raises(RangelineError, match=r"must be|must have"):
        resolve_checkpoint(Workspace(root), name)


@pytest.mark.parametrize("name", ["", ".", "nothing"])
def test_checkpoint_that_is_none_is_refused(tmp_path, name):
    """A name that is neither `warmup`, a run nor a checkpoint is refused with what it must be."""
    with pytest.raises(ConfigError, match=r"must be 'warmup', a run or a checkpoint folder"):
        resolve_checkpoint(Workspace(tmp_path), name)


def test_data_files_of_one_name_do_not_overwrite_each_other(root, tmp_path):
    """Two data files of the same name in different folders are refused, or both are kept; none is lost."""
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "rows.jsonl").write_text(folder)
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump({"data": {"files": ["one/rows.jsonl", "two/rows.jsonl"]}}))
    with pytest.raises(ConfigError, match=r"'data\.files' must have distinct names; got 'rows\.jsonl' twice"):
        choose_workspace(root, config_file=tmp_path / "mine.yaml", assignments=(), environ={})


def test_settings_file_cannot_make_the_root_its_workspace(root, tmp_path):
    """A settings file with an odd name never has the root's own params.yaml overwritten."""
    path = tmp_path / "...yaml"
    path.write_text("seed: 5\n")
    with pytest.raises(ConfigError, match="name"):
        choose_workspace(root, config_file=path, assignments=(), environ={})
    assert (root / "params.yaml").read_text() == "seed: 0\n"


def test_data_file_outside_is_copied_not_linked(root, tmp_path):
    """A data file by absolute path becomes a copy of its own in the workspace."""
    rows = tmp_path / "far" / "rows.jsonl"
    rows.parent.mkdir()
    rows.write_text("x")
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump({"data": {"files": [str(rows)]}}))
    workspace, config = choose_workspace(root, config_file=tmp_path / "mine.yaml", assignments=(), environ={})
    copy = workspace.root / config.data.files[0]
    rows.unlink()
    assert ("x", False) == (copy.read_text(), copy.is_symlink())
