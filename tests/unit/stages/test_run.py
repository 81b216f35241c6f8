"""Runs: which settings find a run again, and from which iteration it goes on."""

import json
import shutil

import pytest

from rangeline.config import build_config, merge
from rangeline.errors import CalibrationError, CheckpointError, ConfigError
from rangeline.lineage import MANIFEST_NAME, atomic_write, digest_file, write_manifest
from rangeline.rollout.pretrained import resolve_dtype
from rangeline.stages.run import (
    RunFolder,
    free_run_name,
    last_complete,
    open_run,
    read_run,
    resolve_checkpoint,
    run_identity,
    runs_like,
)
from rangeline.stages.workspace import Workspace

MADE = ("pools", "warmup", "calibration")


def _make(workspace, name, content="x"):
    folder = getattr(workspace, name)
    atomic_write(folder / "made.bin", content)
    write_manifest(folder / MANIFEST_NAME, workspace.root, kind=name, outputs={folder / "made.bin": None})


@pytest.fixture
def workspace(tmp_path):
    """Give a workspace whose pools, warm-up and calibration are made."""
    place = Workspace(tmp_path / "w")
    for name in MADE:
        _make(place, name)
    return place


def _config(**over):
    return build_config(merge({"train": {"iterations": 3}}, over), source="test")


def _checkpoint(folder, number):
    path = folder.checkpoint(number)
    for name, content in (
        ("state.json", f'{{"iteration": {number}}}'),
        ("optimizer.safetensors", "o"),
        ("policy/w", "w"),
    ):
        atomic_write(path / name, content)
    files = {
        item.relative_to(path).as_posix(): {"sha256": digest_file(item), "size": item.stat().st_size}
        for item in path.rglob("*")
        if item.is_file()
    }
    atomic_write(path / "COMPLETE", json.dumps({"files": files}))
    return path


def _finish(folder, *numbers):
    for number in numbers:
        marker = _checkpoint(folder, number) / "COMPLETE"
        atomic_write(folder.iteration(number) / "checkpoint.json", marker.read_bytes())
        path = folder.iteration(number) / MANIFEST_NAME
        outputs = {folder.iteration(number) / "checkpoint.json": None}
        write_manifest(path, folder.root.parents[1], kind="iteration", outputs=outputs)


def test_run_opened_twice_is_the_same_run(workspace):
    """The same settings find the run again, and its file is not written anew."""
    first = open_run(workspace, _config(), None)
    path = first.folder.root / "run.json"
    before = path.stat().st_mtime_ns
    assert first == open_run(workspace, _config(), None)
    assert before == path.stat().st_mtime_ns


def test_new_run_starts_at_the_beginning(workspace):
    """A new run has no iteration done and nothing passed over."""
    opened = open_run(workspace, _config(), "mine")
    assert ("mine", 0, ()) == (opened.folder.name, opened.done, opened.passed_over)


def test_default_name_says_estimator_and_identity(workspace):
    """Without a name the run is called after its estimator and its identity."""
    config = _config(advantages={"estimator": "grpo"})
    assert f"grpo-{run_identity(workspace, config)[:8]}" == open_run(workspace, config, None).folder.name


@pytest.mark.parametrize(
    "over",
    [
        {"train": {"iterations": 9}},
        {"train": {"on_alarm": "continue"}},
        {"train": {"keep_checkpoints": 5, "keep_best": "none"}},
        {"train": {"max_silent_iterations": 9}},
        {"coverage": {"min_rows": 4, "confidence": 0.9}},
        {"evaluate": {"samples": 2, "pass_at": (1, 2)}},
        {"policy": {"precision": resolve_dtype("auto"), "sampler_dtype": resolve_dtype("auto")}},
        {"judge": {"budget": {"calls": 5, "tokens": 100, "money": 1.0}}},
        {"judge": {"url": "http://127.0.0.1:9/v1", "api_key_env": "KEY", "cache": "shared.sqlite"}},
        {"judge": {"server": {"concurrency": 2, "timeout_s": 5.0, "attempts": 9, "max_wait_s": 1.0}}},
    ],
)
def test_free_settings_find_the_same_run(workspace, over):
    """How long, strictly, where and at what cost a run goes on may change; `auto` is the precision it means here."""
    first = open_run(workspace, _config(), "mine")
    assert first == open_run(workspace, _config(**over), "mine")
    assert open_run(workspace, _config(), None).folder == open_run(workspace, _config(**over), None).folder


@pytest.mark.parametrize(
    "over",
    [
        {"seed": 1},
        {"train": {"prompts_per_iteration": 4}},
        {"train": {"labelled_prompts": 4}},
        {"intervals": {"alpha": 0.2}},
        {"advantages": {"estimator": "grpo"}},
        {"objective": {"learning_rate": 1e-4}},
        {"sampling": {"max_tokens": 4}},
        {"judge": {"model": "other"}},
        {"judge": {"limits": {"reply_tokens": 7}}},
        {"judge": {"server": {"context_tokens": 99}}},
        {"policy": {"precision": "float32" if resolve_dtype("auto") == "bfloat16" else "bfloat16"}},
    ],
)
def test_other_settings_are_another_run(workspace, over):
    """What decides an iteration's numbers may not change inside a run; by default it names another."""
    first = open_run(workspace, _config(), "mine")
    with pytest.raises(
        ConfigError, match=r"Run 'mine' was started with other settings.*Choose another name with --run"
    ):
        open_run(workspace, _config(**over), "mine")
    assert open_run(workspace, _config(), None).folder != open_run(workspace, _config(**over), None).folder
    assert first == open_run(workspace, _config(), "mine")


@pytest.mark.parametrize("name", MADE)
def test_other_data_are_another_run(workspace, name):
    """Pools, warm-up or calibration made anew with other bytes do not continue a run."""
    open_run(workspace, _config(), "mine")
    _make(workspace, name, "y")
    with pytest.raises(ConfigError, match="Run 'mine' was started with other settings, data or calibration"):
        open_run(workspace, _config(), "mine")


@pytest.mark.parametrize("name", MADE)
def test_data_made_again_alike_continue_the_run(workspace, name):
    """The same bytes made again, though with another manifest, continue the run."""
    first = open_run(workspace, _config(), "mine")
    path = getattr(workspace, name) / MANIFEST_NAME
    atomic_write(path, path.read_text().replace('"python": "', '"python": "another '))
    assert first == open_run(workspace, _config(), "mine")


@pytest.mark.parametrize("name", MADE)
def test_what_was_not_made_is_named(workspace, name):
    """A run needs pools, warm-up and calibration; the absent one is named and no run is started."""
    shutil.rmtree(getattr(workspace, name))
    with pytest.raises(CalibrationError, match=rf"'{name}' must be made before training; got no"):
        open_run(workspace, _config(), "mine")
    assert not workspace.runs.exists()


def test_run_name_cannot_leave_the_runs(workspace):
    """A run name with a way out is refused before anything is written."""
    with pytest.raises(ConfigError, match="Run name must be"):
        open_run(workspace, _config(), "../mine")
    assert not workspace.runs.exists()


def test_run_remembers_its_settings(workspace):
    """A run's file holds name, identity and every setting that it was started with."""
    opened = open_run(workspace, _config(), "mine")
    value = read_run(opened.folder)
    assert ("mine", run_identity(workspace, _config())) == (value["name"], value["identity"])
    assert _config() == build_config(value["config"], source="run.json")


def test_unknown_run_is_named_with_those_that_exist(workspace):
    """Reading a run that is not there lists the known ones."""
    open_run(workspace, _config(), "one")
    with pytest.raises(ConfigError, match=r"Run 'none' must exist; got no .*Known runs: one\."):
        read_run(RunFolder(workspace.runs / "none"))


@pytest.mark.parametrize("text", ["{", "", "\x00"])
def test_damaged_run_file_is_named(workspace, text):
    """A run's file that is no JSON is named when the run is opened."""
    opened = open_run(workspace, _config(), "mine")
    (opened.folder.root / "run.json").write_text(text)
    with pytest.raises(ConfigError, match=r"run\.json' must be JSON; got"):
        open_run(workspace, _config(), "mine")


def test_run_goes_on_after_its_last_iteration(workspace):
    """The newest complete iteration counts as done."""
    _finish(open_run(workspace, _config(), "mine").folder, 1, 2)
    opened = open_run(workspace, _config(), "mine")
    assert (2, ()) == (opened.done, opened.passed_over)


def test_numbers_are_compared_as_numbers(tmp_path):
    """Iteration 10 is after iteration 9, whatever their names' order."""
    folder = RunFolder(tmp_path)
    _finish(folder, 9, 10)
    assert (10, ()) == last_complete(folder)


def test_pruned_checkpoints_do_not_matter(tmp_path):
    """Older checkpoints may be gone."""
    folder = RunFolder(tmp_path)
    _finish(folder, 1, 2, 3)
    shutil.rmtree(folder.checkpoint(1))
    assert (3, ()) == last_complete(folder)


def test_no_checkpoint_is_iteration_zero(tmp_path):
    """A run without checkpoints is at its start."""
    assert (0, ()) == last_complete(RunFolder(tmp_path))


@pytest.mark.parametrize("name", ["COMPLETE", "state.json", "optimizer.safetensors", "policy/w"])
def test_incomplete_checkpoint_is_passed_over(tmp_path, name):
    """A checkpoint that lacks a file is passed over with the reason, for the one before."""
    folder = RunFolder(tmp_path)
    _finish(folder, 1, 2)
    (folder.checkpoint(2) / name).unlink()
    assert (1, ("checkpoint 2: not complete",)) == last_complete(folder)


def test_checkpoint_without_manifest_is_passed_over(tmp_path):
    """A checkpoint whose iteration was not closed is passed over with the reason."""
    folder = RunFolder(tmp_path)
    _finish(folder, 1)
    _checkpoint(folder, 2)
    assert (1, ("checkpoint 2: its iteration has no manifest",)) == last_complete(folder)


def test_checkpoint_of_another_writing_is_passed_over(tmp_path):
    """A checkpoint that is not the one its iteration's manifest names is passed over with the reason."""
    folder = RunFolder(tmp_path)
    _finish(folder, 1, 2)
    (folder.iteration(2) / "checkpoint.json").write_text("{}")
    assert (1, ("checkpoint 2: not the one that its manifest names",)) == last_complete(folder)


def test_reasons_are_given_newest_first(tmp_path):
    """Every newer remains are told, from the newest on."""
    folder = RunFolder(tmp_path)
    _finish(folder, 1, 2, 3)
    (folder.checkpoint(3) / "COMPLETE").unlink()
    (folder.iteration(2) / MANIFEST_NAME).unlink()
    done, reasons = last_complete(folder)
    assert (1, ["checkpoint 3", "checkpoint 2"]) == (done, [reason.split(":")[0] for reason in reasons])


@pytest.mark.parametrize("name", ["000002.partial-41", "000001.replaced-41", "2x", "notes.txt"])
def test_remains_of_a_killed_writer_do_not_stop_the_run(tmp_path, name):
    """Whatever a killed writer or a person left beside the checkpoints, the run goes on from the last whole one."""
    folder = RunFolder(tmp_path)
    _finish(folder, 1)
    (folder.root / "checkpoints" / name).mkdir()
    assert 1 == last_complete(folder)[0]


def test_checkpoint_is_found_by_run_path_or_warm_up(workspace):
    """`warmup`, a run's name and a checkpoint's path lead to the policy's folder."""
    folder = open_run(workspace, _config(), "mine").folder
    _finish(folder, 1, 2)
    expected = [workspace.warmup, folder.checkpoint(2), folder.checkpoint(1)]
    names = ("warmup", "mine", "runs/mine/checkpoints/000001")
    assert expected == [resolve_checkpoint(workspace, name) for name in names]


def test_run_without_a_checkpoint_has_no_policy(workspace):
    """A run that finished no iteration cannot be evaluated; the message says how to go on."""
    open_run(workspace, _config(), "mine")
    with pytest.raises(CheckpointError, match=r"Run 'mine' must have a complete checkpoint; got none\. Resume it"):
        resolve_checkpoint(workspace, "mine")


def test_a_name_that_is_taken_gets_a_number(workspace):
    """The first name that no run has is free."""
    assert "night" == free_run_name(workspace, "night")
    for name in ("night", "night-2"):
        open_run(workspace, _config(), name)
    assert "night-3" == free_run_name(workspace, "night")


def test_runs_of_the_same_question_are_told_with_their_iterations(workspace):
    """Only runs of these settings and this prefix count, each with what is done of it."""
    for name in ("night-1", "night-2", "mine"):
        open_run(workspace, _config(), name)
    open_run(workspace, _config(seed=99), "night-3")
    _finish(RunFolder(workspace.run("night-2")), 1, 2)
    assert {"night-1": 0, "night-2": 2} == runs_like(workspace, _config(), prefix="night-")
