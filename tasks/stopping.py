"""Stop a long run at its next safe point: the first Ctrl-C or SIGTERM asks, the second one ends it at once."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopRequest:
    """Whether somebody asked to stop; make it with `stop_asked`."""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        """The signal that asked; None while nobody did."""

    def __bool__(self) -> bool:
        """Tell whether somebody asked."""
        return self.signal is not None

    @property
    def exit_code(self) -> int:
        """Exit status that shells give to a command that this signal ended: 130 for Ctrl-C, 143 for SIGTERM."""
        return 128 + (self.signal or signal.SIGINT)


@contextmanager
def stop_asked(on_ask: Callable[[signal.Signals], None]) -> Iterator[StopRequest]:
    """Take the first signal within the block as a wish to stop; the next one does what it would have done before.

    Outside of the main thread no signal can be taken, and the block runs as if none came.

    Parameters
    ----------
    on_ask
        Called with the signal that asked; should be quick.

    Yields
    ------
    StopRequest
        True once somebody asked.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    before = {number: signal.getsignal(number) for number in _SIGNALS}

    def restore() -> None:
        for number, handler in before.items():
            # None is a handler that was not set from Python, which Python cannot set again.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def take(number: int, frame: FrameType | None) -> None:
        restore()
        request.signal = signal.Signals(number)
        on_ask(request.signal)

    for number in _SIGNALS:
        signal.signal(number, take)
    try:
        yield request
    finally:
        restore()
