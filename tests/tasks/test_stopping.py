"""Stop requests: the first signal asks, the second one does what it did before."""

import os
import signal
import threading

import pytest

from tasks.stopping import stop_asked


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_first_signal_asks_and_lets_the_block_go_on(number, code):
    """A signal within the block raises nothing: it is told once, and the block ends as it would have."""
    told = []
    with stop_asked(told.append) as stop:
        assert not stop
        os.kill(os.getpid(), number)
        assert stop
    assert ([number], number, code) == (told, stop.signal, stop.exit_code)


def test_second_signal_ends_at_once():
    """The signal after the first one does what it would do outside the block."""
    # Tests that run in the background may have begun with the signal ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with stop_asked(lambda _: None):
            os.kill(os.getpid(), signal.SIGINT)
            with pytest.raises(KeyboardInterrupt, match=r"^$"):
                os.kill(os.getpid(), signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


def test_handlers_are_as_before_afterwards():
    """The block leaves no handler behind, whether a signal came or not."""
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    for asked in (False, True):
        with stop_asked(lambda _: None):
            if asked:
                os.kill(os.getpid(), signal.SIGTERM)
        assert before == [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]


def test_other_threads_run_as_if_no_signal_came():
    """Outside of the main thread, where no signal can be taken, the block runs and nobody has asked."""
    seen = []

    def work():
        with stop_asked(lambda _: None) as stop:
            seen.append(bool(stop))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert [False] == seen
