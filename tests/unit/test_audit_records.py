"""Audit beyond manifests: superseded is told from tampered, and noted files and tracked numbers are verified."""

import json
import math

import pytest

from benchmarks.lineage.make import make_data, make_iteration
from rangeline.audit import Stores, audit
from rangeline.audit_records import (
    TrackedNumbers,
    check_kept,
    check_ledger,
    check_noted,
    check_numbers,
    iteration_numbers,
    point_numbers,
)
from rangeline.provenance.kept import find_kept, kept_digests
from rangeline.provenance.ledger import PRUNED, Note, append_note, ledger_path, read_ledger, vouched_files
from rangeline.run_notes import run_facts, why_absent
from rangeline.stages.retention import find_older, keep_lineage, lineage_refs


def nothing(name):
    """Have no original."""


def look(root, folder):
    """Audit a folder with what the workspace knows of later runs."""
    ledger = read_ledger(root)
    stores = Stores(
        original=nothing,
        older=lambda sha256, md5: find_kept(root, sha256),
        vouched=vouched_files(root, ledger),
        why_deleted=ledger.why_deleted,
    )
    return audit(root, folder, original=nothing, stores=stores)


@pytest.fixture
def moved_on(tmp_path):
    """Give a workspace whose data went on after a run, with the run's lineage kept; return root and iteration."""
    make_data(tmp_path)
    manifest = make_iteration(tmp_path, "r", 1, ["p1"])
    keep_lineage(tmp_path, lineage_refs(tmp_path, manifest, find_older(tmp_path)))
    make_data(tmp_path, more=["p9"])
    return tmp_path, manifest.parent


def states(node):
    """Return the findings of a tree by status."""
    found = {}
    for one in node.walk():
        for item in one.findings:
            found.setdefault(item.status, {})[item.path] = item.detail
    return found


def test_data_that_went_on_is_no_failure(moved_on):
    """What a later run made anew is superseded: the old chain is walked and its bytes verified where they are kept."""
    node = look(*moved_on)
    found = states(node)
    assert () == node.failures
    assert "the recorded bytes are kept and match" in found["superseded"]["data/pools/policy.parquet"]
    assert "data/pools/manifest.json" in found["superseded"]
    assert {"calibration", "pools", "warmup"} <= {one.title.split(" (")[0] for one in node.walk()}


def test_kept_bytes_that_are_lost_or_damaged_are_told(moved_on):
    """A superseded file whose kept bytes are damaged is told to be kept no more."""
    root, folder = moved_on
    ref = next(
        r for r in lineage_refs(root, folder / "manifest.json", find_older(root)) if r.path.endswith("policy.parquet")
    )
    find_kept(root, ref.sha256).write_bytes(b"damaged")
    assert "the recorded bytes were not kept" in states(look(root, folder))["superseded"]["data/pools/policy.parquet"]


def test_tampering_is_never_taken_for_a_later_run(moved_on):
    """A file that is neither the recorded nor the newly noted one fails, although the recorded bytes are kept."""
    root, folder = moved_on
    path = root / "data" / "pools" / "policy.parquet"
    path.write_bytes(path.read_bytes() + b"x")
    assert "data/pools/policy.parquet" in {item.path for item in look(root, folder).failures}


def test_a_manifest_that_was_changed_vouches_for_nothing(moved_on):
    """Whoever changes a file and its manifest alike is found by the ledger, and the file fails too."""
    root, folder = moved_on
    path, manifest = root / "data" / "pools" / "policy.parquet", root / "data" / "pools" / "manifest.json"
    path.write_bytes(b"forged")
    value = json.loads(manifest.read_text())
    manifest.write_text(json.dumps(value))
    found = {item.path for item in look(root, folder).failures}
    assert {"data/pools/policy.parquet", "data/pools/manifest.json"} <= found
    assert "data/pools/manifest.json" in {i.path for i in check_noted(root, read_ledger(root)) if i.is_failure}


def test_what_retention_deleted_is_pruned_and_not_missing(moved_on):
    """A file that the ledger says was deleted is pruned with the reason; another that is gone is missing."""
    root, folder = moved_on
    append_note(root, Note(kind=PRUNED, ended="x", facts={"deleted": ["runs/r/iterations"], "reason": "old night"}))
    (folder / "policy_0.parquet").unlink()
    (root / "data" / "calibration" / "scorer.bin").unlink()
    (root / "data" / "pools" / "audit.parquet").unlink()
    digest = next(
        r.sha256 for r in lineage_refs(root, folder / "manifest.json", find_older(root)) if "scorer" in r.path
    )
    find_kept(root, digest).unlink()
    found = states(look(root, folder))
    assert "not in place; the recorded bytes are kept" in found["superseded"]["data/pools/audit.parquet"]
    assert "old night" in found["pruned"]["runs/r/iterations/000001/policy_0.parquet"]
    assert "data/calibration/scorer.bin" in found["missing"]


def test_noted_files_are_verified(tmp_path):
    """A report that no manifest names is verified by the ledger: changed, gone and led outside are failures."""
    for name in ("a.html", "b.html", "c.html"):
        (tmp_path / name).write_text("page")
        note = {"path": name, "sha256": "0" * 64} if name == "a.html" else {"path": name, "sha256": _digest("page")}
        append_note(tmp_path, Note(kind="report", ended="x", files=(note,)))
    append_note(tmp_path, Note(kind="report", ended="x", files=({"path": "../out", "sha256": "0" * 64},)))
    (tmp_path / "b.html").unlink()
    found = {item.path: item.status for item in check_noted(tmp_path, read_ledger(tmp_path))}
    assert {"a.html": "changed", "b.html": "missing", "c.html": "ok", "../out": "outside"} == found


def _digest(text):
    import hashlib

    return hashlib.sha256(text.encode()).hexdigest()


def test_a_broken_ledger_is_a_failure(tmp_path):
    """A ledger whose line was changed is named with the line; a whole one matches."""
    append_note(tmp_path, Note(kind="night", ended="x"))
    assert ["ok"] == [item.status for item in check_ledger(tmp_path, read_ledger(tmp_path))]
    path = ledger_path(tmp_path)
    path.write_text(path.read_text().replace("night", "might"))
    assert ["line 1 was changed"] == [item.detail[:18] for item in check_ledger(tmp_path, read_ledger(tmp_path))]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"coverage/empirical": 0.9, "loss": 1 / 7, "time/a": 2.0, "tracking/nonfinite_count": 0.0}, None),
        (
            {"coverage/empirical": 0.95, "loss": 1 / 7, "time/a": 2.0},
            "metric 'coverage/empirical' is 0.95 in the store",
        ),
        ({"coverage/empirical": 0.9, "loss": 1 / 7}, "metric 'time/a' is None in the store"),
        ({"coverage/empirical": 0.9, "loss": 1 / 7, "time/a": 2.0, "new": 1.0}, "is None in the file it came from"),
        ({"coverage/empirical": math.nan, "loss": 1 / 7, "time/a": 2.0}, "contradicts itself in the store"),
    ],
    ids=["same", "changed", "removed", "added", "not a number"],
)
def test_tracked_numbers_are_those_of_the_files(tmp_path, values, expected):
    """Every number of the store equals that of the iteration's files, and the other way round; the first is named."""
    make_data(tmp_path)
    manifest = make_iteration(tmp_path, "r", 1, ["p1"])
    (manifest.parent / "timings.json").write_text('{"time/a": 2.0}')
    own = iteration_numbers(manifest.parent)
    found = check_numbers("runs/r/iterations/000001", own, TrackedNumbers(run_id="x", values=values))
    assert (expected is not None) is found.is_failure
    assert (expected or "3 metrics") in found.detail


def test_a_training_run_holds_each_number_at_its_step(tmp_path):
    """An iteration's numbers stand at its own number, those of its optimiser steps at theirs; seconds are left out."""
    folder = tmp_path / "000007"
    folder.mkdir()
    (folder / "metrics.json").write_text('{"loss": 0.5, "status": "covered", "gap": null}')
    (folder / "timings.json").write_text('{"time/a": 2.0}')
    (folder / "steps.json").write_text('[{"step": 13, "grad": 1.0}, {"step": 14, "grad": 2.0}]')
    wanted = {
        "loss at 7": 0.5,
        "status at 7": "covered",
        "gap at 7": None,
        "step/grad at 13": 1.0,
        "step/grad at 14": 2.0,
    }
    assert wanted == point_numbers(folder)


def test_a_changed_byte_of_kept_bytes_is_named(moved_on):
    """What a later run replaced rests on the kept file alone: with one byte of it changed, that file is named."""
    root, _ = moved_on
    assert {"ok"} == {item.status for item in check_kept(root)}
    place = next(iter(kept_digests(root).values()))
    content = place.read_bytes()
    place.unlink()  # a hard link: its other name must not change with it
    place.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    bad = [item for item in check_kept(root) if item.is_failure]
    assert [place.relative_to(root).as_posix()] == [item.path for item in bad]
    assert "kept as" in bad[0].detail


@pytest.mark.parametrize("text", ["{", "[]", '{"kept": [1]}', '{"keqt": [1], "retired": [], "best": null}'])
def test_a_damaged_note_of_retention_stops_no_audit(text, tmp_path):
    """A note that cannot be read explains nothing, and is no error: its manifest tells that it changed."""
    folder = tmp_path / "runs" / "r" / "iterations" / "000001"
    folder.mkdir(parents=True)
    (folder / "retention.json").write_text(text)
    sittings = tmp_path / "runs" / "r" / "sittings"
    sittings.mkdir()
    (sittings / "0001.json").write_text(text)
    assert ("sitting 0001 cannot be read: it was changed",) == run_facts(folder)
    is_retired, _ = why_absent(tmp_path / "runs" / "r" / "checkpoints" / "000001")
    assert is_retired
