"""Seconds of parts add up and are taken once."""

import time

from rangeline.policy.stopwatch import Stopwatch


def test_parts_add_up_to_what_passed_and_are_taken_once():
    """Laps of one name add up; together they are the time since the start; a second taking finds nothing."""
    watch = Stopwatch()
    time.sleep(0.01)
    begun = time.perf_counter()
    watch.start()
    for _ in range(2):
        time.sleep(0.002)
        watch.lap("forward")
        watch.lap("backward")
    passed = time.perf_counter() - begun
    seconds = watch.take()
    assert {"forward", "backward"} == set(seconds)
    assert seconds["forward"] >= 0.004
    assert sum(seconds.values()) <= passed
    assert {} == watch.take()
