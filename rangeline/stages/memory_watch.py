"""Say in time that memory runs out: the system ends a process that asks for more than there is, without a word.

A thread looks at what is left while a session works, and tells once each time it falls below a floor: how much, and
what to do. It ends nothing: what is left may be enough.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psutil

from rangeline.stages.machine_checks import available_memory

_MIB = 2**20
_SMALL_SHARE = 0.03
_SMALL_BYTES = 256 * _MIB


def memory_floor() -> int:
    """Return the bytes below which the machine is taken to run out: 3 % of all, and no less than 256 MiB."""
    return max(_SMALL_BYTES, int(_SMALL_SHARE * psutil.virtual_memory().total))


@contextmanager
def watch_memory(
    tell: Callable[[str], None],
    *,
    floor: int | None = None,
    available: Callable[[], int] = available_memory,
    every_s: float = 1.0,
) -> Iterator[None]:
    """Look at the memory that is left while the block runs.

    Parameters
    ----------
    tell
        Called with a sentence, from another thread; should be quick.
    floor
        Bytes below which it tells; None takes `memory_floor`.
    available
        Gives the bytes that this process may still take.
    every_s
        Seconds between two looks, positive.
    """
    least, ended = memory_floor() if floor is None else floor, threading.Event()

    def look() -> None:
        was_low = False
        while not ended.wait(every_s):
            left = available()
            is_low = left < least
            if is_low and not was_low:
                tell(
                    f"memory runs out: {left // _MIB} MiB are left, below {least // _MIB}. The system kills a process "
                    "that asks for more; complete checkpoints stay, and the same command goes on from the last. End "
                    "what else runs, or lower policy.prompts_per_batch and objective.micro_batch_tokens; "
                    "'rangeline estimate' says what a run needs"
                )
            was_low = is_low

    thread = threading.Thread(target=look, name="watch-memory", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
