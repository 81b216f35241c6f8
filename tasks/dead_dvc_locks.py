"""Let go of what a killed dvc left in its table of busy files: half a table, or entries of processes that are gone.

dvc drops an entry itself where no process of its number lives. A number that was given to another process since, or a
table that was cut short, would block every later command for ever. Whether a process is the one that wrote an entry is
told by the words of its command, which dvc writes down: times would tell it only while nobody sets the clock.
"""

import json
import logging
from pathlib import Path
from typing import Any

import psutil

from rangeline.lineage import atomic_write

logger = logging.getLogger("rangeline")
_TABLE = "rwlock"


def release_dead(folder: Path) -> None:
    """Mend the table of a repository; to be called while no command of ours runs there.

    Parameters
    ----------
    folder
        `.dvc/tmp` of the repository.
    """
    path = folder / _TABLE
    if not path.is_file():
        return
    try:
        table: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
        kept = {mode: _living(held) for mode, held in table.items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        logger.warning("dvc's table of busy files was cut short by a killed command, and is made anew (%s)", path)
        path.unlink()
        return
    if kept != table:
        logger.warning("dvc's table of busy files named processes that are gone; they were taken out (%s)", path)
        atomic_write(path, json.dumps(kept))


def _living(held: dict[str, Any]) -> dict[str, Any]:
    """Return the entries of one mode whose processes live; readers of a file are a list, its writer is one."""
    found: dict[str, Any] = {}
    for name, holders in held.items():
        if isinstance(holders, list):
            living: Any = [holder for holder in holders if _lives(holder)]
        else:
            living = holders if holders and _lives(holders) else None
        if living:
            found[name] = living
    return found


def _lives(holder: dict[str, Any]) -> bool:
    """Tell whether the process that wrote an entry lives: another of its number has other words in its command."""
    try:
        words = psutil.Process(int(holder["pid"])).cmdline()
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True
    # The first word is the program, which Python names otherwise than the system does.
    arguments = str(holder.get("cmd", "")).split()[1:]
    return not arguments or " ".join(words).split()[-len(arguments) :] == arguments
