"""Laws of digests: equal content is one digest, and a changed byte moves its own block alone."""

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from rangeline.audit import first_difference
from rangeline.lineage import artifact_ref, block_bytes, block_digests, digest_file

CONTENT = st.binary(min_size=1, max_size=1500)


SCRATCH = tempfile.TemporaryDirectory()


def _files(*contents):
    folder = Path(tempfile.mkdtemp(dir=SCRATCH.name))
    paths = [folder / str(i) for i in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    return paths


def _changed(content, place):
    index = place % len(content)
    return index, content[:index] + bytes([content[index] ^ 1]) + content[index + 1 :]


@settings(max_examples=50, deadline=None)
@given(CONTENT, CONTENT)
def test_digests_are_equal_exactly_where_contents_are(left, right):
    """Digest, size and blocks of two files agree if and only if their bytes do."""
    a, b = _files(left, right)
    assert (left == right) == (digest_file(a) == digest_file(b))
    same_ref = artifact_ref(a, a).md5 == artifact_ref(b, b).md5
    assert (left == right) == same_ref


@settings(max_examples=50, deadline=None)
@given(CONTENT, st.integers(0, 10**6))
def test_changed_byte_moves_its_own_block_alone(content, place):
    """One changed byte changes the digest of the block that it lies in, and no other."""
    index, damaged = _changed(content, place)
    a, b = _files(content, damaged)
    pairs = zip(block_digests(a), block_digests(b), strict=True)
    assert [index // block_bytes(len(content))] == [i for i, (x, y) in enumerate(pairs) if x != y]


@settings(max_examples=50, deadline=None)
@given(CONTENT, st.integers(0, 10**6))
def test_first_difference_is_the_changed_byte(content, place):
    """The first difference of a file and its damaged copy is where it was damaged, from both sides."""
    index, damaged = _changed(content, place)
    a, b = _files(content, damaged)
    assert (index, index) == (first_difference(a, b), first_difference(b, a))


@settings(max_examples=30, deadline=None)
@given(CONTENT, CONTENT)
def test_first_difference_of_a_longer_file_is_the_shorter_end(content, more):
    """A file and its continuation differ at the end of the shorter one; a file and itself at their end."""
    a, b, c = _files(content, content + more, content)
    assert (len(content), len(content)) == (first_difference(a, b), first_difference(b, a))
    assert len(content) == first_difference(a, c)
