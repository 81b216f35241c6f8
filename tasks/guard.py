"""Run a command and end its whole family when it or the parent is gone: `python -m tasks.guard COMMAND`.

A server of another project starts processes of its own, which a killed parent would leave behind; a worker starts flow
runs in sessions of their own, which no signal to a group would reach. The guard adopts what its descendants leave
(Linux), so that everything that came of the command is below it, and ends with it.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from types import FrameType

import psutil

from rangeline.orphans import die_with_parent

_PR_SET_CHILD_SUBREAPER = 36
_TICK_S = 0.2
_BURY_EVERY_S = 5.0
_GRACE_S = 3.0
"""For those whose parent was killed: nobody waits for them."""
_PATIENCE_S = 15.0
"""For what a command left that ended by itself: an iteration in hand may come to its end."""


def guard(command: list[str]) -> int:
    """Run the command to its end, or until the parent is gone; return its exit status once none of its family lives.

    Parameters
    ----------
    command
        Program and arguments.
    """
    parent, is_linux = os.getppid(), sys.platform == "linux"

    def outlive(number: int, frame: FrameType | None) -> None:
        """Leave a signal to the command, which gets it too: the guard ends after it."""

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, outlive)
    if is_linux:
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    # Should the guard itself be killed, the command at least ends with it.
    child = subprocess.Popen(command, preexec_fn=die_with_parent() if is_linux else None)
    buried = time.monotonic()
    while child.poll() is None:
        if os.getppid() != parent:
            os.killpg(0, signal.SIGTERM)
            end_family(_GRACE_S)
            return child.wait()
        if time.monotonic() - buried > _BURY_EVERY_S:
            _bury(child.pid)
            buried = time.monotonic()
        time.sleep(_TICK_S)
    end_family(_PATIENCE_S if child.returncode >= 0 else _GRACE_S)
    return child.returncode


def end_family(grace_s: float) -> None:
    """Ask every child of this process to end, and kill it with all below it when it has not in time.

    Parameters
    ----------
    grace_s
        Seconds between the two.
    """
    for process in _living(recursive=False):
        with suppress(psutil.NoSuchProcess):
            process.terminate()
    deadline = time.monotonic() + grace_s
    while _living(recursive=False) and time.monotonic() < deadline:
        time.sleep(_TICK_S)
    # Whoever loses its parent comes to this process, so the next look finds it.
    while family := _living(recursive=True):
        for process in family:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        time.sleep(_TICK_S / 4)


def _living(*, recursive: bool) -> list[psutil.Process]:
    found = []
    for process in psutil.Process().children(recursive=recursive):
        with suppress(psutil.NoSuchProcess):
            if process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def _bury(own: int) -> None:
    """Let the system forget adopted processes that have ended; the command's own end is waited for elsewhere."""
    for process in psutil.Process().children():
        with suppress(psutil.NoSuchProcess, ChildProcessError):
            if process.pid != own and process.status() == psutil.STATUS_ZOMBIE:
                os.waitpid(process.pid, os.WNOHANG)


if __name__ == "__main__":
    sys.exit(guard(sys.argv[1:]))
