"""Tell a full disk from every other failure, whichever library met it first."""

import errno
import os
import re
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from rangeline.errors import DiskFullError, RangelineError

_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""No space, no quota, or a file longer than this process may write: to the writer they are one."""
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


def _says_full(link: BaseException) -> bool:
    if isinstance(link, DiskFullError) or (isinstance(link, OSError) and link.errno in _ERRNOS):
        return True
    writes = isinstance(link, OSError | sqlite3.Error) or type(link).__module__.partition(".")[0] in _WRITERS
    return writes and _WORDS.search(str(link)) is not None


@dataclass(frozen=True, slots=True)
class FullDiskTold:
    """A block whose failure for want of room becomes one error that says what was kept; other failures pass.

    Use it as a context manager.

    Raises
    ------
    DiskFullError
        When nothing more can be written.
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
