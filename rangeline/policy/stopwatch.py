"""Seconds of the parts of an update, added up under their names until somebody takes them.

It computes the time between two laps. It is divided by nothing, and leaves out what an accelerator still has to do:
a lap ends when the work is handed over, which on a CPU is when it is done.
"""

import time


class Stopwatch:
    """Adds up the seconds of named parts."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._since = time.perf_counter()

    def start(self) -> None:
        """Begin a part here: what passed since the last lap belongs to none."""
        self._since = time.perf_counter()

    def lap(self, name: str) -> None:
        """Add what passed since the last lap, or the start, to a part; the next one begins here."""
        now = time.perf_counter()
        self._seconds[name] = self._seconds.get(name, 0.0) + now - self._since
        self._since = now

    def take(self) -> dict[str, float]:
        """Return the seconds by part, and begin anew at zero."""
        taken, self._seconds = self._seconds, {}
        return taken
