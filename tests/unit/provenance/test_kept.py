"""Kept bytes: found by digest, never believed when damaged, and gone only when nothing needs them."""

import pytest

from rangeline.lineage import digest_bytes
from rangeline.provenance.kept import find_kept, keep, keep_only, kept_digests


@pytest.mark.parametrize("link", [True, False])
def test_kept_bytes_outlive_their_file(tmp_path, link):
    """A file that is replaced by another is still found under its digest."""
    path, digest = tmp_path / "a", digest_bytes(b"old")
    path.write_bytes(b"old")
    assert keep(tmp_path, path, digest, link=link)
    path.unlink()
    path.write_bytes(b"new")
    assert b"old" == find_kept(tmp_path, digest).read_bytes()
    assert link or b"old" == find_kept(tmp_path, digest).read_bytes()


def test_a_copy_stands_when_its_source_is_written_into(tmp_path):
    """What is copied does not follow a person's edit; what is linked does, and is then not believed."""
    path, digest = tmp_path / "a", digest_bytes(b"old")
    path.write_bytes(b"old")
    keep(tmp_path, path, digest, link=False)
    path.write_bytes(b"OLD")
    assert b"old" == find_kept(tmp_path, digest).read_bytes()


def test_damaged_bytes_are_not_given(tmp_path):
    """A kept file that was changed is as good as none."""
    path, digest = tmp_path / "a", digest_bytes(b"old")
    path.write_bytes(b"old")
    keep(tmp_path, path, digest, link=True)
    path.write_bytes(b"oLd")
    assert find_kept(tmp_path, digest) is None


def test_other_bytes_are_not_kept(tmp_path):
    """A file that is not of its digest, or not there, is not kept."""
    (tmp_path / "a").write_bytes(b"other")
    assert not keep(tmp_path, tmp_path / "a", digest_bytes(b"old"), link=True)
    assert not keep(tmp_path, tmp_path / "absent", digest_bytes(b"old"), link=True)
    assert {} == kept_digests(tmp_path)


def test_only_what_is_needed_stays(tmp_path):
    """What nothing needs goes, and its bytes are counted."""
    for text in (b"one", b"three"):
        (tmp_path / "a").unlink(missing_ok=True)
        (tmp_path / "a").write_bytes(text)
        keep(tmp_path, tmp_path / "a", digest_bytes(text), link=True)
    assert 5 == keep_only(tmp_path, [digest_bytes(b"one")])
    assert {digest_bytes(b"one")} == kept_digests(tmp_path).keys()
