"""Lineage: whole writes, digests of content alone, manifests without a clock, and errors that name the file."""

import hashlib
import json
import os
import re
import shutil

import pytest

from rangeline.errors import LineageError
from rangeline.lineage import (
    MANIFEST_NAME,
    artifact_ref,
    atomic_path,
    atomic_write,
    block_bytes,
    block_digests,
    code_state,
    digest_bytes,
    digest_file,
    digest_json,
    environment,
    read_manifest,
    relative_path,
    write_json,
    write_manifest,
)


def _made(root, content="abc"):
    """Make one artifact with its manifest; return the manifest's path."""
    data = root / "data" / "made" / "rows.txt"
    source = root / "data" / "raw.txt"
    atomic_write(source, "raw")
    atomic_write(data, content)
    path = data.parent / MANIFEST_NAME
    write_manifest(
        path, root, kind="made", inputs=(source,), outputs={data: 3}, parameters={"seed": 1}, facts={"rows": 3}
    )
    return path


def test_write_is_whole(tmp_path):
    """A written file holds its content, whether text or bytes, and folders are made on the way."""
    atomic_write(tmp_path / "a" / "b.txt", "é")
    atomic_write(tmp_path / "c.bin", b"\x00\xff")
    assert ("é".encode(), b"\x00\xff") == ((tmp_path / "a" / "b.txt").read_bytes(), (tmp_path / "c.bin").read_bytes())


def test_failed_write_leaves_the_old_file(tmp_path):
    """When the writer fails halfway, the old file is as before and no partial file lies beside it."""
    path = tmp_path / "f.txt"
    atomic_write(path, "old")

    def write_half():
        with atomic_path(path) as partial:
            partial.write_text("ne")
            msg = "disk gone"
            raise OSError(msg)

    with pytest.raises(OSError, match="disk gone"):
        write_half()
    assert ("old", [path]) == (path.read_text(), list(tmp_path.iterdir()))


def test_reader_sees_the_old_file_until_the_end(tmp_path):
    """The final name holds the old content while the new one is being written."""
    path = tmp_path / "f.txt"
    atomic_write(path, "old")
    with atomic_path(path) as partial:
        partial.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"


def test_partial_file_is_beside_its_target(tmp_path):
    """The temporary file is hidden and in the target's folder, so that the move stays on one file system."""
    with atomic_path(tmp_path / "f.txt") as partial:
        partial.write_text("")
        assert (tmp_path, True) == (partial.parent, partial.name.startswith("."))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_json_refuses_what_it_does_not_know(tmp_path, value):
    """NaN and infinity are refused, and the old file stays."""
    write_json(tmp_path / "f.json", {"a": 1})
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "f.json", {"a": value})
    assert {"a": 1} == json.loads((tmp_path / "f.json").read_text())


def test_json_bytes_do_not_depend_on_key_order(tmp_path):
    """Equal mappings give equal bytes."""
    write_json(tmp_path / "1.json", {"a": 1, "b": {"c": 2, "d": "é"}})
    write_json(tmp_path / "2.json", {"b": {"d": "é", "c": 2}, "a": 1})
    assert (tmp_path / "1.json").read_bytes() == (tmp_path / "2.json").read_bytes()


def test_digest_is_sha256_of_the_content(tmp_path):
    """The digest of a file is that of its bytes, whatever its name."""
    (tmp_path / "a").write_bytes(b"abc")
    (tmp_path / "b").write_bytes(b"abc")
    expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert {expected} == {digest_bytes(b"abc"), digest_file(tmp_path / "a"), digest_file(tmp_path / "b")}


def test_digest_of_json_looks_at_values():
    """Key order does not count; types and values do."""
    assert digest_json({"a": 1, "b": 2}) == digest_json({"b": 2, "a": 1})
    assert 3 == len({digest_json({"a": 1}), digest_json({"a": "1"}), digest_json({"a": 2})})


def test_artifact_ref_describes_the_file(tmp_path):
    """A ref holds workspace path, both digests, size and rows."""
    path = tmp_path / "data" / "f.bin"
    atomic_write(path, b"abc")
    ref = artifact_ref(path, tmp_path, rows=2)
    assert ("data/f.bin", hashlib.md5(b"abc").hexdigest(), digest_bytes(b"abc"), 3, 2) == (
        ref.path,
        ref.md5,
        ref.sha256,
        ref.size,
        ref.rows,
    )


@pytest.mark.parametrize("name", ["absent", "."])
def test_artifact_must_be_a_file(tmp_path, name):
    """An absent file or a folder is no artifact."""
    with pytest.raises(LineageError, match=r"Artifact '.*' must exist; got no such file"):
        artifact_ref(tmp_path / name, tmp_path)


def test_path_outside_the_workspace_stays_absolute(tmp_path):
    """A path inside is relative and POSIX; one outside is not dressed up as inside."""
    inside, outside = tmp_path / "w" / "a" / "b", tmp_path / "x"
    assert ("a/b", outside.as_posix()) == (
        relative_path(inside, tmp_path / "w"),
        relative_path(outside, tmp_path / "w"),
    )
    assert outside.as_posix() == relative_path(tmp_path / "w" / ".." / "x", tmp_path / "w")


@pytest.mark.parametrize(("size", "expected"), [(0, 256), (1, 256), (65_536, 256), (65_537, 257), (10**6, 3907)])
def test_block_length_keeps_at_most_256_blocks(size, expected):
    """Small files have blocks of 256 bytes; large ones have 256 blocks."""
    assert expected == block_bytes(size)
    assert -(-size // block_bytes(size)) <= 256


def test_empty_file_has_no_blocks(tmp_path):
    """No byte, no block."""
    (tmp_path / "f").write_bytes(b"")
    assert [] == block_digests(tmp_path / "f")


def test_manifest_reads_back_as_written(tmp_path):
    """A manifest holds what it was given, with code and environment."""
    manifest = read_manifest(_made(tmp_path))
    assert ("made", {"seed": 1}, {"rows": 3}) == (manifest.kind, manifest.parameters, manifest.facts)
    assert (["data/raw.txt"], ["data/made/rows.txt"]) == (
        [ref.path for ref in manifest.inputs],
        [ref.path for ref in manifest.outputs],
    )
    assert (code_state(), environment()) == (manifest.code, manifest.environment)
    assert {"data/made/rows.txt": [digest_bytes(b"abc")[:16]]} == manifest.blocks


def test_manifest_has_no_clock(tmp_path):
    """Making the same again, on another day and in another folder, gives the same bytes."""
    first = _made(tmp_path / "a")
    second = _made(tmp_path / "b")
    for path in (tmp_path / "b").rglob("*"):
        os.utime(path, (1, 1))
    again = _made(tmp_path / "b")
    assert first.read_bytes() == second.read_bytes() == again.read_bytes()
    assert not re.search(r"20\d\d-\d\d|(?<![0-9a-f])1[6-9]\d{8}(?![0-9a-f])", first.read_text())


def test_manifest_names_no_machine_path(tmp_path):
    """Paths of the workspace's files are relative, so a moved workspace has the same manifests."""
    assert str(tmp_path) not in _made(tmp_path).read_text()


def test_manifest_follows_its_content(tmp_path):
    """Another output gives another manifest."""
    assert _made(tmp_path / "a").read_bytes() != _made(tmp_path / "b", "abd").read_bytes()


def test_manifest_of_an_absent_file_is_not_written(tmp_path):
    """When a named file is absent, the error names it and no manifest appears."""
    with pytest.raises(LineageError, match=r"Artifact '.*gone' must exist"):
        write_manifest(tmp_path / "manifest.json", tmp_path, kind="k", outputs={tmp_path / "gone": None})
    assert not (tmp_path / "manifest.json").exists()


def test_moved_workspace_reads_the_same(tmp_path):
    """A copied workspace's manifest equals the original's, ref by ref."""
    path = _made(tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    expected = read_manifest(path)
    actual = read_manifest(tmp_path / "b" / path.relative_to(tmp_path / "a"))
    assert (expected.inputs, expected.outputs) == (actual.inputs, actual.outputs)


def test_absent_manifest_is_named(tmp_path):
    """An absent manifest is an error that says which stage is missing."""
    with pytest.raises(LineageError, match=r"Manifest '.*manifest\.json' must exist; got no such file\. Run the stage"):
        read_manifest(tmp_path / "manifest.json")


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "3", "null", '"x"', "{}", '{"format": 1}', "\x00", '{"format": 1, "inputs": [{"path": 1}]}'],
)
def test_damaged_manifest_is_named(tmp_path, text):
    """A file that is no manifest is an error that names it."""
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(LineageError, match=r"Manifest '.*manifest\.json' must be a Rangeline manifest"):
        read_manifest(tmp_path / "manifest.json")


def test_manifest_that_is_no_text_is_named(tmp_path):
    """Bytes that are no UTF-8 are an error that names the file."""
    (tmp_path / "manifest.json").write_bytes(b"\xff\xfe")
    with pytest.raises(LineageError, match=r"Manifest '.*manifest\.json' must be a Rangeline manifest"):
        read_manifest(tmp_path / "manifest.json")


def test_manifest_of_another_format_is_refused(tmp_path):
    """A manifest of a later format is refused, not half read."""
    path = _made(tmp_path)
    value = json.loads(path.read_text())
    path.write_text(json.dumps({**value, "format": 2}))
    with pytest.raises(LineageError, match="must have format 1"):
        read_manifest(path)


def test_environment_and_code_are_facts_of_this_process():
    """Both are the same at every call, and name version and interpreter."""
    assert (environment(), code_state()) == (environment(), code_state())
    assert {"version", "commit", "dirty"} == set(code_state())
    assert re.fullmatch(r"[0-9a-f]{64}", environment()["packages_sha256"])
