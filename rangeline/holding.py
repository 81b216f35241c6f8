"""Let one process at a time work at a thing: the second is refused, and told who holds it.

The lock is the operating system's: a holder that was killed lets go of it. Its file tells who holds it and is never
removed, since two could then hold two files of one name.
"""

import fcntl
import json
import os
import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from rangeline.errors import BusyError

UNNAMED = "a process that has not said its name yet"


@contextmanager
def hold(path: Path, thing: str, *, about: Mapping[str, str] | None = None) -> Iterator[None]:
    """Hold a lock while the block runs.

    Parameters
    ----------
    path
        Its file, made with its folder where absent.
    thing
        What is held, as a message names it.
    about
        What else the holder says of itself, such as its flow run.

    Raises
    ------
    BusyError
        When another one holds it; names process, machine and time.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="utf-8") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            handle.seek(0)
            msg = (
                f"{thing} must be worked at by one process at a time; got {_told(handle.read())} at work ('{path}'). "
                "Wait until it has ended, or end it; nothing was changed here."
            )
            raise BusyError(msg) from None
        handle.truncate(0)
        since = datetime.now(UTC).isoformat(timespec="seconds")
        json.dump({"pid": os.getpid(), "host": platform.node(), "since": since, **(about or {})}, handle)
        handle.flush()
        try:
            yield
        finally:
            handle.truncate(0)


def holder_of(path: Path) -> str | None:
    """Return who holds a lock, in words; None where nobody does. The answer is true at the time of the call only."""
    if not path.is_file():
        return None
    with path.open(encoding="utf-8") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return _told(handle.read())
    return None


def _told(text: str) -> str:
    try:
        value = json.loads(text)
        more = "".join(f", {name} {value[name]}" for name in sorted(value.keys() - {"pid", "host", "since"}))
        return f"process {value['pid']} on {value['host']}, since {value['since']}{more}"
    except (ValueError, KeyError, TypeError, AttributeError):
        return UNNAMED
