"""Where the passing files of a comparison's runs lie: what goes when a run is finished may lie in memory meanwhile.

`RANGELINE_SCRATCH` names a folder of a quick file system, such as /dev/shm. A run's `iterations` is then a link into
it. A run that is cut off goes on from there; where the folder was emptied, by a restart of the machine, its iterations
are not there any more, and the run begins again, as after any other loss of them.
"""

import os
import shutil
from pathlib import Path

from rangeline.errors import ConfigError
from rangeline.lineage import digest_bytes

SCRATCH = "RANGELINE_SCRATCH"
ITERATIONS = "iterations"


def scratch_folder() -> Path | None:
    """Return this user's own folder in the scratch folder that the environment names; None where it names none.

    Raises
    ------
    ConfigError
        It is no folder that can be written to, or this user's part of it belongs to somebody else.
    """
    named = os.environ.get(SCRATCH)
    if not named:
        return None
    base = Path(named)
    if not base.is_dir() or not os.access(base, os.W_OK):
        msg = f"'{SCRATCH}' must name a folder that can be written to; got '{named}'. Name another, or unset it."
        raise ConfigError(msg)
    own = base / f"rangeline-{os.getuid()}"
    own.mkdir(mode=0o700, exist_ok=True)
    if own.is_symlink() or own.stat().st_uid != os.getuid():
        msg = f"'{own}' must belong to the user who compares; got another owner. Name another folder in '{SCRATCH}'."
        raise ConfigError(msg)
    return own


def place_iterations(run: Path, scratch: Path | None) -> None:
    """Let the iterations of a run lie in the scratch folder; those that were begun elsewhere stay where they are.

    Parameters
    ----------
    run
        The run's folder.
    scratch
        Folder for passing files; None leaves them with the run.
    """
    link = run / ITERATIONS
    if link.is_symlink() and not link.exists():
        link.unlink()
    if scratch is None or link.exists():
        return
    target = scratch / _name_of(run)
    target.mkdir(exist_ok=True)
    run.mkdir(parents=True, exist_ok=True)
    link.symlink_to(target)


def remove_iterations(run: Path) -> None:
    """Let the iterations of a run go, wherever they lie."""
    link = run / ITERATIONS
    if link.is_symlink():
        target = link.resolve()
        link.unlink()
        if target.name == _name_of(run):  # a folder that somebody else linked is theirs
            shutil.rmtree(target, ignore_errors=True)
    else:
        shutil.rmtree(link, ignore_errors=True)


def _name_of(run: Path) -> str:
    return digest_bytes(str(run.resolve()).encode())[:16]
