"""Audit: a whole chain verifies, and each kind of damage is found, named and located."""

import json
import re
import shutil

import pytest

from rangeline.audit import Stores, audit, audit_folders, first_difference, render_tree
from rangeline.errors import LineageError
from rangeline.lineage import MANIFEST_NAME, atomic_write, block_digests, digest_file, write_manifest

TABLE = "data/pools/policy.bin"
SIZE = 600


def _stage(root, name, parents=(), **about):
    folder = root / "data" / name
    files = {folder / f"{word}.bin": None for word in ("policy", "audit")}
    for number, path in enumerate(files):
        atomic_write(path, bytes((i * 7 + number) % 251 for i in range(SIZE)))
    paths = [root / "data" / parent / MANIFEST_NAME for parent in parents]
    write_manifest(folder / MANIFEST_NAME, root, kind=name, outputs=files, parents=paths, **about)


def _checkpoint(root, number):
    folder = root / "runs" / "r" / "checkpoints" / f"{number:06d}"
    atomic_write(folder / "policy" / "weights.bin", bytes([number % 256]) * SIZE)
    atomic_write(folder / "state.json", json.dumps({"iteration": number}))
    names = ("policy/weights.bin", "state.json")
    files = {
        name: {"sha256": digest_file(path), "size": path.stat().st_size, "blocks": block_digests(path)}
        for name, path in ((name, folder / name) for name in names)
    }
    atomic_write(folder / "COMPLETE", json.dumps({"files": files}))
    return folder


def _iteration(root, number):
    folder = root / "runs" / "r" / "iterations" / f"{number:06d}"
    marker = _checkpoint(root, number) / "COMPLETE"
    atomic_write(folder / "rollouts.bin", bytes([number % 256]) * 300)
    atomic_write(folder / "checkpoint.json", marker.read_bytes())
    before = [root / "runs" / "r" / "iterations" / f"{number - 1:06d}" / MANIFEST_NAME] if number > 1 else []
    write_manifest(
        folder / MANIFEST_NAME,
        root,
        kind="iteration",
        inputs=[root / TABLE],
        outputs={folder / "rollouts.bin": 1, folder / "checkpoint.json": None},
        parents=[*(root / "data" / name / MANIFEST_NAME for name in ("pools", "calibration")), *before],
        facts={"iteration": number},
    )


@pytest.fixture
def chain(tmp_path):
    """Give a workspace with pools, a calibration upon them, and a run of three iterations upon both."""
    _stage(tmp_path, "pools", facts={"counts": {"policy": 3}})
    _stage(tmp_path, "calibration", parents=("pools",))
    for number in (1, 2, 3):
        _iteration(tmp_path, number)
    return tmp_path


def _checkpoint_of(root, number=3):
    return root / "runs" / "r" / "checkpoints" / f"{number:06d}"


def _iteration_of(root, number=3):
    return root / "runs" / "r" / "iterations" / f"{number:06d}"


def _audit(root, start=None, original=lambda name: None):
    return audit(root, start or _checkpoint_of(root), original=original)


def _flip(path, index=0):
    content = bytearray(path.read_bytes())
    content[index] ^= 1
    path.write_bytes(content)


def _failed(node):
    return {item.path: item.status for item in node.failures}


def test_whole_chain_verifies(chain):
    """From the newest checkpoint every file of every stage and iteration is verified, and nothing fails."""
    node = _audit(chain)
    assert () == node.failures
    stages = {f"data/{name}/{file}" for name in ("pools", "calibration") for file in ("policy.bin", "audit.bin")}
    verified = {item.path for one in node.walk() for item in one.findings if item.status == "ok"}
    assert stages <= verified
    for number in (1, 2, 3):
        assert f"runs/r/iterations/{number:06d}/rollouts.bin" in verified
    assert "runs/r/checkpoints/000003/policy/weights.bin" in verified
    assert len(verified) == node.num_files


@pytest.mark.parametrize(
    "place", ["data/pools", "data/calibration", "data/pools/manifest.json", "runs/r/iterations/000002"]
)
def test_audit_starts_anywhere_in_the_chain(chain, place):
    """A stage's folder, a manifest file and an iteration's folder can be audited as a checkpoint can."""
    assert () == _audit(chain, chain / place).failures


def test_moved_workspace_verifies(chain, tmp_path_factory):
    """A workspace copied elsewhere verifies as it did, with as many files."""
    target = tmp_path_factory.mktemp("moved") / "w"
    shutil.copytree(chain, target)
    assert (_audit(chain).num_files, ()) == (_audit(target).num_files, _audit(target).failures)


@pytest.mark.parametrize("index", [0, 1, 255, 256, 257, 511, 512, SIZE - 1])
def test_changed_byte_is_located_to_its_block(chain, index):
    """Without the original at hand the block that holds the changed byte is named."""
    _flip(chain / TABLE, index)
    (finding,) = _audit(chain).failures
    assert (TABLE, "changed") == (finding.path, finding.status)
    start, end = map(int, re.search(r"lies in \[(\d+), (\d+)\) \(of 600\)", finding.detail).groups())
    assert start <= index < end
    assert end - start <= 256


def test_every_byte_is_located_exactly_by_the_original(chain):
    """With the original at hand each single changed byte is found at its own offset."""
    path, original = chain / TABLE, chain / "original"
    shutil.copy(path, original)
    content = path.read_bytes()
    start = chain / "data" / "pools"
    for index in range(SIZE):
        path.write_bytes(content[:index] + bytes([content[index] ^ 255]) + content[index + 1 :])
        (finding,) = _audit(chain, start, lambda name: original if name == TABLE else None).failures
        assert f"first byte that does not match: {index} (of {SIZE})" == finding.detail


def test_wrong_original_is_not_believed(chain):
    """A file that does not have the recorded hash cannot locate a difference."""
    path, other = chain / TABLE, chain / "other"
    other.write_bytes(b"x" * SIZE)
    _flip(path, 300)
    (finding,) = _audit(chain, original=lambda name: other).failures
    assert "lies in [256, 512)" in finding.detail


@pytest.mark.parametrize("change", [lambda b: b[:-1], lambda b: b + b"x", lambda b: b""])
def test_another_length_is_told(chain, change):
    """A file that lost or gained bytes fails with both sizes."""
    path = chain / TABLE
    path.write_bytes(change(path.read_bytes()))
    (finding,) = _audit(chain).failures
    assert ("changed", True) == (finding.status, f"size {path.stat().st_size}, recorded {SIZE}" in finding.detail)


def test_file_that_two_manifests_record_differently_fails(chain):
    """A file made again after it was read fails for the reader, although its new maker's record matches."""
    folder = chain / "data" / "later"
    atomic_write(folder / "made.bin", "made")
    older = folder / MANIFEST_NAME
    write_manifest(older, chain, kind="later", inputs=[chain / TABLE], outputs={folder / "made.bin": None})
    atomic_write(chain / TABLE, b"new" * 200)
    top = chain / "data" / "top"
    atomic_write(top / "made.bin", "top")
    write_manifest(
        top / MANIFEST_NAME,
        chain,
        kind="top",
        inputs=[chain / TABLE],
        outputs={top / "made.bin": None},
        parents=[older],
    )
    assert {TABLE: "changed"} == _failed(_audit(chain, top))


def test_missing_file_is_named(chain):
    """A file that is gone fails as missing, with the hash it had."""
    sha256 = digest_file(chain / TABLE)
    (chain / TABLE).unlink()
    (finding,) = _audit(chain).failures
    assert (TABLE, "missing", True) == (finding.path, finding.status, sha256[:12] in finding.detail)


@pytest.mark.parametrize("name", ["../outside.bin", "/etc/hostname"])
def test_path_outside_the_workspace_is_not_followed(chain, name):
    """A manifest that names a file outside the workspace fails there, whatever the file holds."""
    path = chain / "data" / "pools" / MANIFEST_NAME
    value = json.loads(path.read_text())
    value["outputs"][0]["path"] = name
    path.write_text(json.dumps(value))
    assert {name: "outside"} == _failed(_audit(chain, path.parent))


def test_link_out_of_the_workspace_is_outside(chain, tmp_path_factory):
    """A link that leads out of the workspace is outside, although the bytes match."""
    target = tmp_path_factory.mktemp("elsewhere") / "policy.bin"
    shutil.move(chain / TABLE, target)
    (chain / TABLE).symlink_to(target)
    assert {TABLE: "outside"} == _failed(_audit(chain, chain / "data" / "pools"))


def test_damaged_parent_manifest_is_a_failure(chain):
    """A parent manifest that changed fails by its own hash; what it claims is not believed."""
    path = chain / "data" / "pools" / MANIFEST_NAME
    path.write_text(path.read_text() + " ")
    node = _audit(chain)
    assert {"data/pools/manifest.json": "changed"} == _failed(node)
    assert "pools" not in {one.title for one in node.walk()}


def test_parent_manifest_that_is_no_json_is_a_failure(chain):
    """A parent manifest of other bytes is a finding, not the end of the audit."""
    (chain / "data" / "calibration" / MANIFEST_NAME).write_bytes(b"\xff{")
    assert {"data/calibration/manifest.json": "changed"} == _failed(_audit(chain))


def test_earlier_iteration_is_part_of_the_chain(chain):
    """Damage in the first iteration is found from the third checkpoint."""
    _flip(_iteration_of(chain, 1) / "rollouts.bin", 299)
    assert {"runs/r/iterations/000001/rollouts.bin": "changed"} == _failed(_audit(chain))


def test_what_names_one_iteration_rests_on_those_before(chain):
    """A stage upon the last iteration, such as an evaluation, is verified down to the first, alone and among others."""
    last = chain / "runs" / "r" / "iterations" / "000003"
    page = chain / "runs" / "_evaluations" / "e"
    atomic_write(page / "table.bin", b"42")
    write_manifest(
        page / MANIFEST_NAME, chain, kind="evaluation", outputs={page / "table.bin": 1}, parents=[last / MANIFEST_NAME]
    )
    victim = "runs/r/iterations/000001/rollouts.bin"
    (chain / victim).write_bytes(b"x" * 300)
    stores = Stores(original=lambda path: None)
    assert victim in {item.path for item in audit(chain, page, original=stores.original).failures}
    nodes = audit_folders(chain, [page, last], stores=stores)
    assert victim in {item.path for node in nodes for item in node.failures}


def test_start_without_manifest_is_refused(chain):
    """A folder without a manifest cannot be audited."""
    with pytest.raises(LineageError, match=r"must have a manifest; got no '.*manifest\.json'"):
        _audit(chain, chain / "data")


def test_damaged_start_is_refused_by_name(chain):
    """A damaged manifest at the start is an error that names it."""
    path = chain / "data" / "pools" / MANIFEST_NAME
    path.write_text("{")
    with pytest.raises(LineageError, match=r"data/pools/manifest\.json' must be a Rangeline manifest"):
        _audit(chain, path.parent)


def test_pruned_checkpoint_is_no_failure(chain):
    """Retention may have deleted older checkpoints; the chain above them still stands."""
    shutil.rmtree(_checkpoint_of(chain, 1))
    shutil.rmtree(_checkpoint_of(chain, 2))
    assert () == _audit(chain).failures


def test_pruned_checkpoint_of_an_audited_iteration_is_told(chain):
    """Auditing an iteration whose checkpoint was deleted says that it was pruned, and does not fail."""
    shutil.rmtree(_checkpoint_of(chain, 2))
    node = _audit(chain, _iteration_of(chain, 2))
    assert () == node.failures
    assert any("pruned" in line for line in render_tree(node))


def _note(root, number, retired, kept, best=None):
    note = {"retired": retired, "kept": kept, "best": best, "metric": "train/accuracy", "value": best and 0.5}
    atomic_write(_iteration_of(root, number) / "retention.json", json.dumps(note))


def test_retired_checkpoint_is_told_with_what_was_kept(chain):
    """A checkpoint that retention gave up is no failure: the audit says after which iteration, and what stayed."""
    _note(chain, 1, [], [1])
    _note(chain, 3, [1], [2, 3], best=2)
    shutil.rmtree(_checkpoint_of(chain, 1))
    node = _audit(chain, _iteration_of(chain, 1))
    assert () == node.failures
    expected = "retired by retention after iteration 3, which kept 2, 3, best by train/accuracy: 2; its hashes are kept"
    assert any(line.endswith(expected) for line in render_tree(node))


def test_checkpoint_that_nobody_retired_is_missing(chain):
    """Where a run keeps notes of retention, a checkpoint that is gone without one is a failure."""
    _note(chain, 3, [1], [2, 3])
    shutil.rmtree(_checkpoint_of(chain, 2))
    failures = _audit(chain, _iteration_of(chain, 2)).failures
    assert ["missing, and no iteration retired it; its hashes are kept"] == [item.detail for item in failures]


def test_retired_checkpoint_that_is_asked_for_fails_and_says_why(chain):
    """The audit of a deleted checkpoint cannot verify it, but verifies its chain and says when it was retired."""
    _note(chain, 3, [1], [2, 3])
    shutil.rmtree(_checkpoint_of(chain, 1))
    node = _audit(chain, _checkpoint_of(chain, 1))
    assert [("runs/r/checkpoints/000001", "missing")] == [(item.path, item.status) for item in node.failures]
    assert "retired by retention after iteration 3" in node.failures[0].detail
    assert node.num_files > 3


def test_sittings_are_told_with_what_they_passed_over(chain):
    """The audit says after which iteration a run went on, and which damaged checkpoint it passed over."""
    facts = {"sitting": 2, "resumed_after": 2, "passed_over": ["checkpoint 3: not complete"]}
    path = chain / "runs" / "r" / "sittings" / "0002.json"
    write_manifest(path, chain, kind="sitting", outputs={}, facts=facts)
    lines = render_tree(_audit(chain))
    assert any("sitting 2 went on after iteration 2; passed over checkpoint 3: not complete" in line for line in lines)


def test_absent_target_is_never_fine(chain):
    """The checkpoint that is asked for must be there: its absence is a failure or an error."""
    shutil.rmtree(_checkpoint_of(chain, 2))
    try:
        failed = bool(_audit(chain, _checkpoint_of(chain, 2)).failures)
    except LineageError as error:
        failed = "000002" in str(error) or "manifest" in str(error)
    assert failed


@pytest.mark.parametrize("name", ["policy/weights.bin", "state.json", "COMPLETE"])
def test_changed_byte_of_the_checkpoint_is_found(chain, name):
    """Every file of the checkpoint is verified, its completeness marker too."""
    _flip(_checkpoint_of(chain) / name, 10)
    assert {f"runs/r/checkpoints/000003/{name}": "changed"} == _failed(_audit(chain))


@pytest.mark.parametrize("name", ["policy/weights.bin", "state.json", "COMPLETE"])
def test_missing_file_of_the_checkpoint_is_found(chain, name):
    """A checkpoint with a file gone fails by that file's name."""
    (_checkpoint_of(chain) / name).unlink()
    assert {f"runs/r/checkpoints/000003/{name}": "missing"} == _failed(_audit(chain))


@pytest.mark.parametrize("content", [b"{", b"\xff", b"[]", b"{}", b'{"files": 3}'])
def test_damaged_copy_of_the_marker_is_a_failure(chain, content):
    """An iteration's copy of the marker that is damaged fails by name; the audit goes on."""
    (_iteration_of(chain) / "checkpoint.json").write_bytes(content)
    assert "changed" == _failed(_audit(chain))["runs/r/iterations/000003/checkpoint.json"]


def test_tree_names_what_failed_and_counts_the_rest(chain):
    """The tree counts matching files and names each failure once, with its place."""
    _flip(chain / TABLE, 3)
    lines = render_tree(_audit(chain))
    assert 1 <= len([line for line in lines if f"✗ {TABLE}: first byte" in line])
    assert any(re.search(r"✓ \d+ files match", line) for line in lines)
    assert not any("audit.bin" in line for line in lines)


def test_verbose_tree_names_every_file(chain):
    """The verbose tree names files that match too."""
    lines = render_tree(_audit(chain), verbose=True)
    assert any("data/calibration/audit.bin" in line for line in lines)


def test_tree_shows_each_stage_with_its_facts(chain):
    """The tree names iterations, stages and their facts."""
    text = "\n".join(render_tree(_audit(chain)))
    assert [] == [
        word for word in ("iteration 1", "iteration 3", "calibration", "prompts policy 3") if word not in text
    ]


def test_long_run_is_walked(tmp_path):
    """A run of many iterations is walked without running out of stack."""
    _stage(tmp_path, "pools")
    _stage(tmp_path, "calibration", parents=("pools",))
    for number in range(1, 401):
        _iteration(tmp_path, number)
    node = _audit(tmp_path, _checkpoint_of(tmp_path, 400))
    assert () == node.failures
    assert len(render_tree(node)) > 400


def test_first_difference_of_equal_files_is_their_end(tmp_path):
    """Files that do not differ differ at their end."""
    (tmp_path / "a").write_bytes(b"abc")
    assert 3 == first_difference(tmp_path / "a", tmp_path / "a")


def test_first_difference_crosses_the_read_buffer(tmp_path):
    """A difference beyond the first mebibyte has its offset in the whole file."""
    content = bytes(1 << 20) + b"abc"
    (tmp_path / "a").write_bytes(content)
    (tmp_path / "b").write_bytes(content[:-1] + b"d")
    assert (1 << 20) + 2 == first_difference(tmp_path / "a", tmp_path / "b")
