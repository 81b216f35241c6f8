"""A full disk is told as one error, whichever library met it; nothing else is taken for it."""

import errno
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rangeline.errors import BadInputError, DiskFullError
from rangeline.full_disk import FullDiskTold, is_full_disk


def told(tmp_path):
    """Return a block on this disk."""
    return FullDiskTold(tmp_path, "run 'r'", "Make room.")


@pytest.fixture
def full(tmp_path):
    """Give a link to the kernel's own device that has no room: Arrow deletes the path that it could not write."""
    path = tmp_path / "full"
    path.symlink_to("/dev/full")
    return path


@pytest.mark.parametrize(
    "write",
    [lambda path: path.write_text("x"), lambda path: pq.write_table(pa.table({"a": [1]}), path)],
    ids=["python", "arrow"],
)
def test_full_device_is_told(write, full, tmp_path):
    """What the system says of a full device becomes the one error, with the place and the next step."""
    message = r"The disk must have room for run 'r'; got \d+ KiB free .*Make room\."
    with pytest.raises(DiskFullError, match=message), told(tmp_path):
        write(full)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_quota_and_limit_count_as_full(number):
    """A quota and a limit of the process leave no room either; the cause may lie deep."""
    outer = RuntimeError("the write failed")
    outer.__cause__ = OSError(number, os.strerror(number))
    assert is_full_disk(outer)


@pytest.mark.parametrize(
    "error", [OSError(errno.EACCES, "denied"), ValueError("No space left on device"), RuntimeError("disk is full")]
)
def test_other_failures_pass(error, tmp_path):
    """Another cause, or such words in an error that wraps no write, stays what it is."""
    with pytest.raises(type(error), match=str(error).replace("[", r"\[").replace("]", r"\]")), told(tmp_path):
        raise error


def test_first_message_wins_over_what_failed_while_cleaning_up(tmp_path):
    """An error of cleaning up that hides the full disk gives way to it."""
    first, later = DiskFullError("the first message"), BadInputError("the store did not answer")
    later.__context__ = first
    with pytest.raises(DiskFullError, match="the first message"), told(tmp_path):
        raise later
