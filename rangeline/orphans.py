"""End a child process when its parent is gone: a killed flow must not leave a trainer behind."""

import ctypes
import os
import signal
import threading
import time
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1
ORPHAN_EXIT = 70
"""Exit status of a command that ended itself because its parent was gone."""


def watch_parent(interval_s: float = 0.5) -> threading.Thread:
    """Start a daemon thread that ends this process when its parent changes.

    The parent is the one at the time of the call: call it first thing in a command.

    Parameters
    ----------
    interval_s
        Seconds between two looks, positive.

    Returns
    -------
    threading.Thread
        The running thread.
    """
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(interval_s)
        # Not sys.exit: that would end this thread only, and a stuck main thread would live on.
        os._exit(ORPHAN_EXIT)

    thread = threading.Thread(target=watch, name="watch-parent", daemon=True)
    thread.start()
    return thread


def die_with_parent() -> Callable[[], None]:
    """Return what a child calls between fork and exec to be killed when the parent's calling thread ends; Linux only.

    Everything is looked up before the fork: between fork and exec only one system call is safe in a threaded parent.
    """
    # PyDLL keeps the interpreter lock, which no other thread of the child could give back.
    prctl = ctypes.PyDLL(None, use_errno=False).prctl
    parent = os.getpid()

    def arm() -> None:
        prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != parent:  # died before the signal was armed
            os._exit(ORPHAN_EXIT)

    return arm
