"""Let go of what a killed dvc left in its table of busy files: half a table, or entries of processes that are gone.

dvc drops an entry itself where no process of its number lives. A number that was given to another process since, or a
table that was cut short, would block every later command for ever.
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
    written = path.stat().st_mtime
    try:
        table: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
        kept = {mode: _living(held, written) for mode, held in table.items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        logger.warning("dvc's table of busy files was cut short by a killed command, and is made anew (%s)", path)
        path.unlink()
        return
    if kept != table:
        logger.warning("dvc's table of busy files named processes that are gone; they were taken out (%s)", path)
        atomic_write(path, json.dumps(kept))


def _living(held: dict[str, Any], written: float) -> dict[str, Any]:
    """Return the entries of one mode whose processes live; readers of a file are a list, its writer is one."""
    found: dict[str, Any] = {}
    for name, holders in held.items():
        if isinstance(holders, list):
            living: Any = [holder for holder in holders if _lives(int(holder["pid"]), written)]
        else:
            living = holders if holders and _lives(int(holders["pid"]), written) else None
        if living:
            found[name] = living
    return found


def _lives(pid: int, written: float) -> bool:
    """Tell whether the process that wrote an entry lives: one of its number that began later is another."""
    try:
        return bool(psutil.Process(pid).create_time() <= written)
    except psutil.NoSuchProcess:
        return False
