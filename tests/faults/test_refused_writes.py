"""A folder that may not be written to is one error that names it, before the work or amid it."""

import errno
import os
import shutil
import tempfile
from pathlib import Path

import pytest

from rangeline.errors import BadInputError, NotWritableError
from rangeline.full_disk import FullDiskTold, require_writable
from rangeline.lineage import atomic_write

NOBODY = 65534


def told(place):
    """Return a block that works in a place."""
    return FullDiskTold(place, "run 'r'", "Make room.")


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.EPERM])
def test_a_refused_write_below_the_place_is_told(number, tmp_path):
    """A read-only file system and a missing right are told with the file, whatever error they lie below."""
    outer = RuntimeError("could not save")
    outer.__cause__ = OSError(number, os.strerror(number), str(tmp_path / "policy" / "model.safetensors"))
    with (
        pytest.raises(NotWritableError, match=r"must be writable for run 'r'; got '.*model.safetensors"),
        told(tmp_path),
    ):
        raise outer


def test_a_refusal_elsewhere_stays_what_it_is(tmp_path):
    """A right that is missing in another place, or an error of ours that tells more, passes as it is."""
    with pytest.raises(PermissionError, match="/elsewhere/file"), told(tmp_path):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), "/elsewhere/file")
    ours = BadInputError("what the stage says")
    with pytest.raises(BadInputError, match="what the stage says"), told(tmp_path):
        raise ours from PermissionError(errno.EACCES, "x", str(tmp_path / "a"))


def as_nobody(work):
    """Do something in a forked child of a user without rights; return what it gives as text."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.getuid() == 0:
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            os.write(write, work().encode())
        finally:
            os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with os.fdopen(read) as pipe:
        return pipe.read()


def write_refused(work, place):
    """Return exit code of the error that some work in a place gives, and whether it names the place."""
    try:
        with told(place):
            work()
    except NotWritableError as error:
        return f"{error.exit_code} {str(place) in str(error)};"
    return "no error;"


def test_a_real_read_only_folder_is_told_before_and_amid_the_work(tmp_path):
    """As a user without the right: the check before the work and the write itself give the one error, exit code 2."""
    place = tmp_path / "w"
    (place / "runs" / "r").mkdir(parents=True)
    for folder in (place / "runs" / "r", place / "runs", place):
        folder.chmod(0o555)
    for above in (tmp_path, *tmp_path.parents):
        # Pytest keeps its folders to the user that runs it.
        if above == Path(tempfile.gettempdir()):
            break
        above.chmod(above.stat().st_mode | 0o055)
    works = (lambda: require_writable(place), lambda: atomic_write(place / "runs" / "r" / "a.json", "{}"))
    assert "2 True;2 True;" == as_nobody(lambda: "".join(write_refused(work, place) for work in works))
    assert [] == list((place / "runs" / "r").iterdir())


def test_a_folder_that_can_be_written_to_passes(tmp_path):
    """The check lets a usual folder through, and leaves nothing in it."""
    require_writable(tmp_path)
    atomic_write(tmp_path / "a", "x")
    assert ["a"] == [path.name for path in tmp_path.iterdir()]
    shutil.rmtree(tmp_path)
    with pytest.raises(NotWritableError, match="must be a folder that this user may write to"):
        require_writable(tmp_path)
