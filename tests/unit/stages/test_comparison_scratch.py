"""Passing files of compared runs in a scratch folder: the same result, gone on with after a cut, and nothing left."""

import shutil

import pytest

from rangeline.errors import ConfigError
from rangeline.stages.comparing import run_method
from rangeline.stages.comparison_plan import ComparisonPlan, plan_run
from rangeline.stages.comparison_runs import Looks, result_path
from rangeline.stages.comparison_scratch import SCRATCH, place_iterations, remove_iterations, scratch_folder
from rangeline.stages.progress import silent


class _CutOffError(Exception):
    """What ends a sitting in a test."""


class _Told:
    """Remembers which iterations it was told of."""

    def __init__(self):
        self.iterations = []

    def __call__(self, label, done, total):
        if total == 3:
            self.iterations.append(done)


def _cut_off(label, done, total):
    if done == 2:
        raise _CutOffError


@pytest.fixture
def planned(toy):
    """Give a workspace and a run of three iterations, each with a checkpoint."""
    workspace, config = toy
    plan = ComparisonPlan.model_validate({"name": "s", "methods": ["range"], "reference": "range", "seeds": [1]})
    settings = config.model_dump(mode="json")
    settings["train"] |= {"iterations": 3, "checkpoint_every": 1}
    run = plan_run(plan, settings, design="default", seed=config.seed, method=plan.methods[0], role="test")
    path = result_path(workspace, run, Looks(every=1, validation_share=0.3, keep_files=False))
    shutil.rmtree(path.parent, ignore_errors=True)
    yield workspace, run, path
    shutil.rmtree(path.parent, ignore_errors=True)


def test_a_run_in_scratch_gives_the_same_result_and_leaves_nothing_there(planned, tmp_path):
    """Whole, cut off and gone on with, or begun again after the scratch folder was emptied: byte for byte."""
    workspace, run, path = planned
    on_disk = Looks(every=1, validation_share=0.3, keep_files=False)
    looks = Looks(every=1, validation_share=0.3, keep_files=False, scratch=tmp_path)
    run_method(workspace, run, on_disk, silent)
    wanted = path.read_bytes()
    for what in ("whole", "cut", "emptied", "cut, then without scratch"):
        shutil.rmtree(path.parent)
        if what != "whole":
            with pytest.raises(_CutOffError):
                run_method(workspace, run, looks, _cut_off)
            assert 1 == len(list(tmp_path.iterdir())), what
            if what == "emptied":
                shutil.rmtree(next(tmp_path.iterdir()))
        again = on_disk if what.endswith("without scratch") else looks
        told = _Told()
        run_method(workspace, run, again, told)
        assert wanted == path.read_bytes(), what
        # Seen iterations are not made twice, unless they are gone.
        assert {"whole": [1, 2, 3], "emptied": [1, 2, 3]}.get(what, [3]) == told.iterations, what
        assert not list(tmp_path.iterdir()), what
        assert not (path.parent / "iterations").is_symlink(), what


def test_iterations_that_were_begun_with_the_run_stay_there(tmp_path):
    """A scratch folder that is named later moves nothing."""
    (tmp_path / "run" / "iterations" / "000001").mkdir(parents=True)
    (tmp_path / "scratch").mkdir()
    place_iterations(tmp_path / "run", tmp_path / "scratch")
    assert not (tmp_path / "run" / "iterations").is_symlink()
    assert not list((tmp_path / "scratch").iterdir())


def test_a_folder_that_somebody_linked_is_not_removed(tmp_path):
    """Of a link that this project did not make, the link goes alone."""
    for name in ("run", "theirs"):
        (tmp_path / name).mkdir()
    (tmp_path / "run" / "iterations").symlink_to(tmp_path / "theirs")
    remove_iterations(tmp_path / "run")
    assert (tmp_path / "theirs").is_dir()
    assert not (tmp_path / "run" / "iterations").is_symlink()


def test_two_runs_never_share_a_place(tmp_path):
    """Runs of one name in two workspaces keep their iterations apart."""
    for name in ("a", "b"):
        place_iterations(tmp_path / name / "run", tmp_path)
    places = [(tmp_path / name / "run" / "iterations").readlink() for name in ("a", "b")]
    assert 2 == len(set(places))


def test_a_scratch_folder_is_one_and_the_users_own(tmp_path, monkeypatch):
    """No variable: none. A name that is no folder, or a place that somebody else prepared, is refused by name."""
    monkeypatch.delenv(SCRATCH, raising=False)
    assert scratch_folder() is None
    monkeypatch.setenv(SCRATCH, str(tmp_path))
    own = scratch_folder()
    assert tmp_path == own.parent
    assert 0o700 == own.stat().st_mode & 0o777
    own.rmdir()
    (tmp_path / "elsewhere").mkdir()
    own.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="must belong to the user who compares"):
        scratch_folder()
    monkeypatch.setenv(SCRATCH, str(tmp_path / "none"))
    with pytest.raises(
        ConfigError, match=r"'RANGELINE_SCRATCH' must name a folder that can be written to; got '.*none'"
    ):
        scratch_folder()
