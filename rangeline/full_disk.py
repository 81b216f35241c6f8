"""Tell a full disk, and a place that may not be written to, from every other failure, whichever library met it."""

import errno
import os
import re
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from rangeline.errors import DiskFullError, NotWritableError, RangelineError

_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""No space, no quota, or a file longer than this process may write: to the writer they are one."""
_REFUSALS = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})
"""A read-only file system, or no right to write."""
_REFUSING = re.compile(
    rf"os error (?:{'|'.join(map(str, sorted(_REFUSALS)))})\b|readonly database|Read-only file system"
)
# Libraries that write below Python say it in words: safetensors "(os error 28)", sqlite "disk is full".
_WORDS = re.compile(rf"os error (?:{'|'.join(map(str, sorted(_ERRNOS)))})\b|disk is full|No space left|File too large")
_NOTHING_KIB = 64
"""Below it no file of ours fits any more."""
_WRITERS = frozenset({"safetensors", "safetensors_rust", "sqlalchemy", "mlflow", "pyarrow", "xgboost"})
"""Packages whose errors wrap a failed write; the words in another error may be a prompt's or a path's."""


def chain_of(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and all that it came from, each once."""
    waiting: list[BaseException | None] = [error]
    seen: set[int] = set()
    while waiting:
        link = waiting.pop()
        if link is not None and id(link) not in seen:
            seen.add(id(link))
            yield link
            waiting += [link.__context__, link.__cause__]


def is_full_disk(error: BaseException) -> bool:
    """Return whether an error, or one that it came from, says that nothing more can be written.

    Parameters
    ----------
    error
        Of any library; its causes and contexts are looked at too.
    """
    return any(_says_full(link) for link in chain_of(error))


def require_writable(place: Path) -> None:
    """Check that a folder can be written to, before anything is started.

    Raises
    ------
    NotWritableError
        When it cannot.
    """
    if not os.access(place, os.W_OK | os.X_OK):
        msg = (
            f"'{place}' must be a folder that this user may write to; got a read-only one. Give the user the right, or "
            "copy the workspace to a place where it may."
        )
        raise NotWritableError(msg)


def _refused(error: BaseException, place: Path) -> BaseException | None:
    """Return the link that says that a file below a folder may not be written to."""
    for link in chain_of(error):
        if isinstance(link, OSError) and link.errno in _REFUSALS:
            named = (str(name) for name in (link.filename, link.filename2) if name)
            if any(Path(name).absolute().is_relative_to(place.absolute()) for name in named):
                return link
        elif _writes(link) and _REFUSING.search(str(link)):
            return link
    return None


def _writes(link: BaseException) -> bool:
    return isinstance(link, OSError | sqlite3.Error) or type(link).__module__.partition(".")[0] in _WRITERS


def _says_full(link: BaseException) -> bool:
    if isinstance(link, DiskFullError) or (isinstance(link, OSError) and link.errno in _ERRNOS):
        return True
    return _writes(link) and _WORDS.search(str(link)) is not None


@dataclass(frozen=True, slots=True)
class FullDiskTold:
    """A block whose failure to write becomes one error that says why, and what was kept; other failures pass.

    Use it as a context manager.

    Raises
    ------
    DiskFullError
        When nothing more can be written.
    NotWritableError
        When a file below the place may not be written to.
    """

    place: Path
    """Folder on the disk that is written to."""
    doing: str
    """What the block does, such as "iteration 3 of run 'r'"."""
    remedy: str
    """Next step, a sentence."""

    def __enter__(self) -> Self:
        """Begin the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Turn the failure."""
        if not isinstance(error, Exception) or isinstance(error, DiskFullError):
            return
        told = next((link for link in chain_of(error) if isinstance(link, DiskFullError)), None)
        if told is not None:
            # Cleaning up after the failure failed too; what was said first is what a person needs.
            raise told from error
        facts = os.statvfs(self.place)
        free = facts.f_bavail * facts.f_frsize // 1024
        # A server or a library whose own write failed may not say why; ours would have.
        unsaid = free < _NOTHING_KIB and not isinstance(error, RangelineError)
        if unsaid or is_full_disk(error):
            msg = (
                f"The disk must have room for {self.doing}; got {free} KiB free ('{self.place}': {error}). "
                f"{self.remedy}"
            )
            raise DiskFullError(msg) from error
        refused = None if isinstance(error, RangelineError) else _refused(error, self.place)
        if refused is not None:
            msg = (
                f"'{self.place}' must be writable for {self.doing}; got '{refused}'. Give this user the right to write "
                "there; what is whole stays whole, and the same command goes on."
            )
            raise NotWritableError(msg) from error
