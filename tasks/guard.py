"""Run a command and end its whole family when the parent is gone, however that ended: `python -m tasks.guard COMMAND`.

A server of another project starts processes of its own, which a killed parent would leave behind. The guard is started
in a session of its own, so that its process group is the family.
"""

import os
import signal
import subprocess
import sys
import time
from types import FrameType

_TICK_S = 0.2
_GRACE_S = 3.0


def guard(command: list[str]) -> int:
    """Run the command to its end, or until the parent is gone; return its exit status.

    Parameters
    ----------
    command
        Program and arguments.
    """
    parent = os.getppid()

    def outlive(number: int, frame: FrameType | None) -> None:
        """Leave a signal to the command, which gets it too: the guard ends after it."""

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, outlive)
    child = subprocess.Popen(command)
    while child.poll() is None:
        if os.getppid() != parent:
            os.killpg(0, signal.SIGTERM)
            deadline = time.monotonic() + _GRACE_S
            while child.poll() is None and time.monotonic() < deadline:
                time.sleep(_TICK_S)
            os.killpg(0, signal.SIGKILL)
        time.sleep(_TICK_S)
    return child.returncode


if __name__ == "__main__":
    sys.exit(guard(sys.argv[1:]))
