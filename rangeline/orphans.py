"""End a child process when its parent is gone: a killed flow must not leave a trainer behind."""

import os
import threading
import time

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
