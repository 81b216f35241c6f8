"""A newest checkpoint that is damaged, or rests on a damaged file, is passed over, and that is written down."""

import os
import shutil

import pytest

from rangeline.lineage import read_manifest


def damage(path, how):
    """Cut a file short, change its last byte, or lose it."""
    content = bytearray(path.read_bytes())
    if how == "lost":
        path.unlink()
    elif how == "cut":
        os.truncate(path, len(content) // 2)
    else:
        content[-1] ^= 1
        path.write_bytes(bytes(content))


@pytest.fixture
def finished(begun):
    """Give a run of two iterations that is complete."""
    return begun(2, snapshot_at=1)


@pytest.mark.parametrize(
    ("name", "how", "reason"),
    [
        ("checkpoints/000002/policy/model.safetensors", "changed", "model.safetensors' must have sha256"),
        ("checkpoints/000002/optimizer.safetensors", "cut", "not complete"),
        ("iterations/000002/adaptation.json", "changed", "adaptation.json' is not what the manifest of iteration 2"),
    ],
)
def test_damaged_newest_checkpoint_is_passed_over_and_told(name, how, reason, finished, digests):
    """The run goes on from the checkpoint before, to equal bytes; the sitting's manifest says what it passed over."""
    damage(finished.run / name, how)
    assert 0 == finished.train()["ended"]
    assert finished.expected == digests(finished.run)
    sittings = sorted((finished.run / "sittings").glob("*.json"))
    facts = read_manifest(sittings[-1]).facts
    assert (1, 1) == (facts["resumed_after"], len(facts["passed_over"]))
    assert reason in facts["passed_over"][0]


def test_sitting_without_damage_passes_over_nothing(finished):
    """A sitting that went on from the newest checkpoint says so, by the manifest of the iteration it followed."""
    manifest = read_manifest(finished.run / "sittings" / "0002.json")
    assert (1, 2, []) == tuple(manifest.facts[name] for name in ("resumed_after", "until", "passed_over"))
    assert ["runs/r/iterations/000001/manifest.json"] == [ref.path for ref in manifest.parents]


def test_full_disk_is_one_error_and_leaves_the_run_whole(begun, digests):
    """No room for a checkpoint: one error says so, the last checkpoint stays, nothing half-written does."""
    case = begun(2, snapshot_at=1)
    case.restore()
    before = digests(case.run)
    limit = (case.run / "checkpoints" / "000001" / "optimizer.safetensors").stat().st_size - 1
    said = case.train(max_file_bytes=limit)
    assert (7, "DiskFullError") == (said["ended"], said["error"])
    assert "The disk must have room for run 'r' ('save'); got " in said["message"]
    assert "make room, and the same command goes on" in said["message"]
    assert ["000001"] == [path.name for path in (case.run / "checkpoints").iterdir()]
    assert before == {name: value for name, value in digests(case.run).items() if name in before}
    assert not [name for name in digests(case.run) if ".partial-" in name]
    assert 0 == case.train()["ended"]
    assert case.expected == digests(case.run)


def test_stop_between_two_checkpoints_loses_nothing(begun, crash, digests):
    """Asked to stop where no checkpoint was due, a run makes one, goes on from it, and ends with equal bytes."""
    case = begun(2, snapshot_at=1)
    config = case.config(train={"iterations": 3, "checkpoint_every": 2, "keep_best": "none"})
    ends = []
    for stops in ([None], [1, None]):
        shutil.rmtree(case.run)
        for stop in stops:
            assert 0 == crash(case.root, config, stop_after=stop)["ended"]
            assert (case.run / "checkpoints" / "000001").is_dir() == (stop == 1)
        ends.append(digests(case.run))
    assert ends[0] == ends[1]
    assert 1 == read_manifest(case.run / "sittings" / "0002.json").facts["resumed_after"]
