"""Workspaces: which settings share one, what a derived one holds, and what names may not do."""

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from rangeline.config import VERSIONED_SECTIONS, read_settings
from rangeline.errors import ConfigError
from rangeline.stages.workspace import Workspace, choose_workspace, data_remote, model_cache, open_workspace

PROJECT = Path(__file__).resolve().parents[3]
VERSIONED = (
    "seed=1",
    "data.reference_floor=0.9",
    "split.key=other",
    "policy.prompts_per_batch=4",
    "sampling.group_size=4",
    "judge.max_missing_share=0.5",
    "warmup.epochs=1",
    "calibrate.trees=5",
    "anchors.count=5",
    "metric_head.width=64",
)
FREE = (
    "train.iterations=2",
    "objective.learning_rate=1e-6",
    "intervals.alpha=0.2",
    "coverage.min_rows=4",
    "evaluate.samples=8",
)


@pytest.fixture
def root(tmp_path):
    """Give a workspace with settings and a rubric."""
    folder = tmp_path / "home"
    (folder / "rubrics").mkdir(parents=True)
    (folder / "rubrics" / "arithmetic.yaml").write_text("name: mine\n")
    (folder / "params.yaml").write_text(yaml.safe_dump({"train": {"iterations": 9}}))
    return folder


def _choose(root, *assignments, config_file=None, environ=None):
    return choose_workspace(root, config_file=config_file, assignments=assignments, environ=environ or {})


def _snapshot(folder):
    return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.rglob("*") if path.is_file()}


def test_no_change_is_the_workspace_itself(root):
    """Without further settings the workspace is the root, with its own settings."""
    workspace, config = _choose(root)
    assert (root.resolve(), 9) == (workspace.root, config.train.iterations)


@pytest.mark.parametrize("assignment", FREE)
def test_unversioned_difference_stays(root, assignment):
    """A setting that no data stage reads changes the configuration, not the workspace."""
    workspace, config = _choose(root, assignment)
    assert root.resolve() == workspace.root
    assert config != _choose(root)[1]
    assert not (root / "workspaces").exists()


@pytest.mark.parametrize("assignment", VERSIONED)
def test_versioned_difference_has_a_workspace_of_its_own(root, assignment):
    """A setting that a data stage reads goes to a workspace below, whose params.yaml says the same."""
    workspace, config = _choose(root, assignment)
    assert (root / "workspaces").resolve() == workspace.root.parent
    assert config == open_workspace(workspace.root)[1]
    assert config != _choose(root)[1]


def test_a_workspace_of_its_own_has_the_conditions(root):
    """Condition files go along, from the root where it has them and else those of the project."""
    workspace, _ = _choose(root, "seed=1")
    shipped = {path.name for path in (PROJECT / "conditions").iterdir()}
    assert shipped == {path.name for path in (workspace.root / "conditions").iterdir()}
    (root / "conditions").mkdir()
    (root / "conditions" / "mine.yaml").write_text("suite: s\n")
    workspace, _ = _choose(root, "seed=2")
    assert {"mine.yaml"} == {path.name for path in (workspace.root / "conditions").iterdir()}


def test_every_versioned_section_is_covered_by_a_case():
    """The cases above name each versioned section."""
    assert set(VERSIONED_SECTIONS) == {text.split("=")[0].split(".")[0] for text in VERSIONED}


def test_root_is_left_as_it_is(root):
    """Choosing another workspace changes no file of the root."""
    before = _snapshot(root)
    _choose(root, "seed=1")
    assert before == {path: facts for path, facts in _snapshot(root).items() if "workspaces" not in path.parts}


def test_same_value_as_the_root_is_no_difference(root):
    """Assigning the value that the root has already stays in the root."""
    assert root.resolve() == _choose(root, "seed=0", "sampling.group_size=8")[0].root


def test_same_settings_are_the_same_workspace(root):
    """The same assignments, in any order, find the same workspace."""
    first = _choose(root, "seed=1", "warmup.epochs=1")
    assert first == _choose(root, "warmup.epochs=1", "seed=1")


def test_other_settings_are_another_workspace(root):
    """Two versioned differences do not share a workspace."""
    assert _choose(root, "seed=1")[0] != _choose(root, "seed=2")[0]


@pytest.mark.parametrize("data", ["", "seed=1"])
def test_what_no_data_stage_reads_finds_the_workspace_that_was_made(root, tmp_path, data):
    """After `prepare --config F`, `train --config F --set train.iterations=2` works there and rewrites nothing."""
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump({"warmup": {"epochs": 1}, "train": {"iterations": 4}}))
    given = [data] if data else []
    made, _ = _choose(root, *given, config_file=tmp_path / "mine.yaml")
    before = _snapshot(made.root)
    workspace, config = _choose(root, *given, "train.iterations=2", config_file=tmp_path / "mine.yaml")
    assert (made, 2, 1) == (workspace, config.train.iterations, config.warmup.epochs)
    assert before == _snapshot(made.root)
    assert 4 == open_workspace(made.root)[1].train.iterations


def test_choosing_again_rewrites_nothing(root, tmp_path):
    """The second choice of the same settings touches no file of the workspace."""
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump({"data": {"files": ["rows.jsonl"]}}))
    (tmp_path / "rows.jsonl").write_text("{}\n")
    workspace, _ = _choose(root, config_file=tmp_path / "mine.yaml")
    before = _snapshot(workspace.root)
    _choose(root, config_file=tmp_path / "mine.yaml")
    assert before == _snapshot(workspace.root)


def test_later_assignment_wins(root):
    """Of two assignments to one setting the last counts."""
    assert _choose(root, "train.iterations=2", "train.iterations=3")[1].train.iterations == 3


def test_order_of_strength(root, tmp_path):
    """Assignments are over RANGELINE_POLICY, that over the file, that over params.yaml."""
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump({"policy": {"model": "file"}, "train": {"iterations": 4}}))
    environ = {"RANGELINE_POLICY": "environment"}
    file = _choose(root, config_file=tmp_path / "mine.yaml")[1]
    both = _choose(root, config_file=tmp_path / "mine.yaml", environ=environ)[1]
    all_three = _choose(root, "policy.model=set", config_file=tmp_path / "mine.yaml", environ=environ)[1]
    assert ["file", "environment", "set"] == [item.policy.model for item in (file, both, all_three)]
    assert {4} == {item.train.iterations for item in (file, both, all_three)}


def test_policy_of_the_environment_is_a_versioned_setting(root):
    """RANGELINE_POLICY names the policy, so other data are made; empty means unset."""
    workspace, config = _choose(root, environ={"RANGELINE_POLICY": "folder/model"})
    assert ("folder/model", True) == (config.policy.model, workspace.root != root.resolve())
    assert root.resolve() == _choose(root, environ={"RANGELINE_POLICY": ""})[0].root


def test_derived_workspace_holds_what_it_reads(root, tmp_path):
    """A derived workspace has its own params.yaml, dvc.yaml, rubric and copies of the data files."""
    beside = tmp_path / "elsewhere"
    (beside / "sub").mkdir(parents=True)
    (beside / "sub" / "rows.jsonl").write_text('{"a": 1}\n')
    (beside / "mine.yaml").write_text(yaml.safe_dump({"data": {"files": ["sub/rows.jsonl"]}}))
    workspace, config = _choose(root, config_file=beside / "mine.yaml")
    assert (root / "workspaces" / "mine").resolve() == workspace.root
    assert ("data/raw/rows.jsonl",) == config.data.files
    assert '{"a": 1}\n' == (workspace.root / config.data.files[0]).read_text()
    assert "name: mine\n" == (workspace.root / config.judge.rubric).read_text()
    assert (PROJECT / "dvc.yaml").read_bytes() == (workspace.root / "dvc.yaml").read_bytes()
    assert config.model_dump(mode="json") == read_settings(workspace.params)


def test_changed_data_file_is_copied_again(root, tmp_path):
    """A data file that changed beside the settings file is brought into the workspace."""
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump({"data": {"files": ["rows.jsonl"]}}))
    for text in ("one\n", "two\n"):
        (tmp_path / "rows.jsonl").write_text(text)
        workspace, _ = _choose(root, config_file=tmp_path / "mine.yaml")
        assert text == (workspace.raw / "rows.jsonl").read_text()


def test_derived_workspace_has_the_folder_that_dvc_asks_for(root):
    """Without data files the raw folder is there all the same."""
    assert _choose(root, "seed=1")[0].raw.is_dir()


def test_missing_data_file_is_named(root, tmp_path):
    """A data file that lies nowhere is an error that names it, and no settings are written."""
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump({"data": {"files": ["gone.jsonl"]}}))
    with pytest.raises(ConfigError, match=r"File 'gone\.jsonl' must exist; got none in .*Correct its path"):
        _choose(root, config_file=tmp_path / "mine.yaml")
    assert not (root / "workspaces" / "mine" / "params.yaml").exists()


def test_missing_rubric_is_named(root):
    """A rubric that lies nowhere is an error that names it."""
    with pytest.raises(ConfigError, match=r"File 'rubrics/gone\.yaml' must exist"):
        _choose(root, "judge.rubric=rubrics/gone.yaml")


def test_absent_settings_file_is_named(root, tmp_path):
    """A settings file that is absent is an error that names it."""
    with pytest.raises(ConfigError, match=r"Settings file '.*none\.yaml' must be readable"):
        _choose(root, config_file=tmp_path / "none.yaml")


def test_wrong_setting_names_the_file_that_holds_it(root, tmp_path):
    """An unknown setting of the further file is reported with that file's name."""
    (tmp_path / "mine.yaml").write_text("sede: 1\n")
    with pytest.raises(ConfigError, match=r"'sede' is not known \(.*mine\.yaml\)"):
        _choose(root, config_file=tmp_path / "mine.yaml")


def test_folder_without_settings_is_no_workspace(tmp_path):
    """Opening a folder without params.yaml names the file that is missing."""
    with pytest.raises(ConfigError, match=r"Settings file '.*params\.yaml' must be readable"):
        open_workspace(tmp_path)


def test_places_lie_inside_the_workspace(tmp_path):
    """Every place of a workspace is below its root, and no two are the same."""
    workspace = Workspace(tmp_path)
    names = [name for name, value in vars(Workspace).items() if isinstance(value, property)]
    places = [getattr(workspace, name) for name in names]
    assert len(places) == len(set(places))
    assert all(place.is_relative_to(tmp_path) for place in places)


@pytest.mark.parametrize("name", ["a", "range-1a2b3c4d", "nightly-2026-01-31", "A.b_c-9", "x" * 80])
def test_run_name_is_a_folder_below_runs(tmp_path, name):
    """A plain name is a folder right below the runs."""
    assert tmp_path / "runs" / name == Workspace(tmp_path).run(name)


def test_caches_follow_the_environment(monkeypatch, tmp_path):
    """RANGELINE_CACHE and RANGELINE_DVC_REMOTE win over the user's folders, those over the home."""
    monkeypatch.setenv("RANGELINE_CACHE", str(tmp_path / "c"))
    monkeypatch.setenv("RANGELINE_DVC_REMOTE", str(tmp_path / "r"))
    assert (tmp_path / "c" / "models", tmp_path / "r") == (model_cache(), data_remote())
    monkeypatch.delenv("RANGELINE_CACHE")
    monkeypatch.delenv("RANGELINE_DVC_REMOTE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "x"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "y"))
    assert (tmp_path / "x" / "rangeline" / "models", tmp_path / "y" / "rangeline" / "dvc") == (
        model_cache(),
        data_remote(),
    )


@pytest.mark.parametrize("place", ["", "workspaces/mine/"])
def test_git_sees_settings_and_never_what_runs_make(tmp_path, place):
    """In the project and in a derived workspace alike, runs, models and tracking are ignored; dvc.lock is not."""
    shutil.copy(PROJECT / ".gitignore", tmp_path)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    made = ("runs/a/report.html", "models/warmup/policy/config.json", "mlruns/mlflow.db", ".rangeline/x", ".prefect/y")
    kept = ("params.yaml", "dvc.yaml", "dvc.lock", "rubrics/mine.yaml")
    names = [f"{place}{name}" for name in (*made, *kept)]
    done = subprocess.run(["git", "check-ignore", *names], cwd=tmp_path, check=False, capture_output=True, text=True)
    assert [f"{place}{name}" for name in made] == done.stdout.split()
