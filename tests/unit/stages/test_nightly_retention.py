"""Retention: old nights go, and never what an alias or a lineage needs."""

import os
import shutil

import pytest

from benchmarks.lineage.make import make_data, make_evaluation, make_iteration
from rangeline.errors import LineageError
from rangeline.lineage import MANIFEST_NAME, digest_file, write_json
from rangeline.provenance.kept import find_kept, kept_digests
from rangeline.provenance.ledger import Note, append_note, read_ledger
from rangeline.stages.retention import (
    Deletion,
    cache_deletions,
    delete,
    drop_kept,
    find_older,
    keep_lineage,
    lineage_refs,
    plan_retention,
    run_of,
)
from rangeline.stages.workspace import Workspace


@pytest.fixture
def place(tmp_path):
    """Give a workspace with four nights of one iteration each, their evaluations, and a run that a person named."""
    make_data(tmp_path)
    for day, run in enumerate(["nightly-1", "nightly-2", "nightly-3", "nightly-4", "mine"]):
        make_iteration(tmp_path, run, 1, ["p1"])
        make_evaluation(tmp_path, run, 1)
        path = tmp_path / "runs" / run / "run.json"
        write_json(path, {"name": run})
        os.utime(path, (1000 * day, 1000 * day))
    return Workspace(tmp_path)


def manifest_of(place, run):
    """Return the manifest of a run's iteration."""
    return place.runs / run / "iterations" / "000001" / MANIFEST_NAME


def test_old_nights_go_with_their_evaluations(place):
    """All but the newest nights go, unless they are protected; a person's run stays whatever its age."""
    gone = {item.path for item in plan_retention(place, read_ledger(place.root), protected={"nightly-1"}, keep_runs=1)}
    assert {f"runs/nightly-{n}" for n in (2, 3)} | {f"runs/_evaluations/nightly-{n}-1" for n in (2, 3)} == gone


def test_the_clock_makes_no_night_older(place):
    """Of nights that the ledger knows, the one that was begun last stays, whatever the times of their files say."""
    for run in ("nightly-3", "nightly-4", "nightly-1", "nightly-2"):
        file = place.runs / run / "run.json"
        noted = {"path": file.relative_to(place.root).as_posix(), "sha256": digest_file(file)}
        append_note(place.root, Note(kind="run", ended="x", files=(noted,)))
    plan = plan_retention(place, read_ledger(place.root), protected=(), keep_runs=1)
    assert {f"runs/nightly-{n}" for n in (1, 3, 4)} == {item.path for item in plan if "_evaluations" not in item.path}


def test_deleting_frees_what_was_said(place):
    """What a plan names is gone afterwards, and its bytes are counted; doing it again finds nothing."""
    plan = plan_retention(place, read_ledger(place.root), protected=(), keep_runs=2)
    assert sum(item.size for item in plan) == delete(place, plan) > 0
    assert () == plan_retention(place, read_ledger(place.root), protected=(), keep_runs=2)
    assert (place.runs / "mine").is_dir()


def test_the_newest_night_always_stays(place):
    """Keeping no night at all is refused."""
    with pytest.raises(LineageError, match="'keep_runs' must be at least 1; got 0"):
        plan_retention(place, read_ledger(place.root), protected=(), keep_runs=0)


@pytest.mark.parametrize("path", ["..", ".", "runs/../.."])
def test_nothing_outside_the_workspace_is_deleted(place, path):
    """A path that leaves the workspace, or is the workspace, is refused."""
    with pytest.raises(LineageError, match="must lie in the workspace to be deleted"):
        delete(place, [Deletion(path, "why", 0)])


def test_a_lineage_outlives_the_data_that_it_was_made_of(place):
    """Kept before new data came, every file of a lineage outside runs is found by digest afterwards."""
    refs = lineage_refs(place.root, manifest_of(place, "nightly-1"), find_older(place.root))
    assert () == keep_lineage(place.root, refs)
    make_data(place.root, more=["p9"])
    shutil.rmtree(place.root / "models")
    outside = [ref for ref in refs if not ref.path.startswith("runs/")]
    assert {"data/raw/rows.jsonl", "models/warmup/policy/weights.bin", "data/pools/manifest.json"} <= {
        ref.path for ref in outside
    }
    assert [] == [ref.path for ref in outside if find_kept(place.root, ref.sha256) is None]
    again = lineage_refs(place.root, manifest_of(place, "nightly-1"), find_older(place.root))
    assert {(ref.path, ref.sha256) for ref in refs} == {(ref.path, ref.sha256) for ref in again}


def test_kept_bytes_of_no_champion_go_but_manifests_stay(place):
    """Without a protected lineage kept data go; manifests that the ledger names stay, so that chains can be walked."""
    refs = lineage_refs(place.root, manifest_of(place, "nightly-1"), find_older(place.root))
    keep_lineage(place.root, refs)
    assert drop_kept(place.root, read_ledger(place.root), []) > 0
    assert kept_digests(place.root).keys() <= read_ledger(place.root).by_manifest.keys()
    assert kept_digests(place.root)


def test_what_is_not_at_hand_is_named(place):
    """A file whose bytes changed since cannot be kept, and is named."""
    refs = lineage_refs(place.root, manifest_of(place, "nightly-1"), find_older(place.root))
    (place.root / "data" / "raw" / "rows.jsonl").write_text("{}\n")
    assert ("data/raw/rows.jsonl",) == keep_lineage(place.root, refs)


def test_only_caches_that_grew_go(place):
    """A cache above its bound goes as a whole, one below stays."""
    place.verdicts.write_bytes(b"x" * 2000)
    assert () == cache_deletions(place, max_bytes=2000)
    assert [".rangeline/verdicts.sqlite"] == [item.path for item in cache_deletions(place, max_bytes=1999)]


def test_run_of_a_path():
    """A run is named by its folder; other paths lie in none."""
    assert ["r", "", ""] == [run_of(path) for path in ("runs/r/checkpoints/000001", "data/pools/x", "runs/r")]
