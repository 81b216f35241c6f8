"""Memory that runs out is told before the system kills anybody: once each time, with what is left and what to do."""

import logging
import time

import numpy as np

from rangeline.stages.machine_checks import available_memory
from rangeline.stages.memory_watch import memory_floor, watch_memory

MIB = 2**20


def wait_for(said, count, seconds=10):
    """Wait until so many sentences were said."""
    deadline = time.monotonic() + seconds
    while len(said) < count and time.monotonic() < deadline:
        time.sleep(0.01)
    return len(said)


def test_what_is_taken_for_real_is_seen_and_told():
    """With a floor just below what is free, taking real memory is told, with the next step."""
    said = []
    floor = available_memory() - 64 * MIB
    with watch_memory(said.append, floor=floor, every_s=0.02):
        taken = np.ones(256 * MIB, dtype=np.uint8)
        assert wait_for(said, 1) >= 1
    assert taken[-1] == 1
    assert "memory runs out: " in said[0]
    assert "the same command goes on from the last" in said[0]


def test_it_is_told_once_each_time_it_falls():
    """While little is left nothing is repeated; after it rose and fell again it is told again."""
    said, left = [], [1000]
    with watch_memory(said.append, floor=500, available=lambda: left[0], every_s=0.005):
        for value, count in ((100, 1), (50, 1), (900, 1), (10, 2)):
            left[0] = value
            wait_for(said, count)
            time.sleep(0.05)
            assert count == len(said)


def test_plenty_is_not_told():
    """With more than the floor nothing is said, and the floor is a small share of the machine."""
    said = []
    with watch_memory(said.append, floor=1, every_s=0.005):
        time.sleep(0.1)
    assert [] == said
    assert 256 * MIB <= memory_floor()


def test_a_session_watches(toy, caplog, monkeypatch):
    """A training session watches for as long as it is open: with a floor above all memory it warns at once."""
    from rangeline.stages import memory_watch
    from rangeline.stages.session import TrainingSession

    monkeypatch.setattr(memory_watch, "_SMALL_BYTES", 2**60)
    workspace, config = toy
    with (
        caplog.at_level(logging.WARNING, logger="rangeline"),
        TrainingSession(workspace, config, run="watched") as session,
    ):
        session.sample(1)
        deadline = time.monotonic() + 10
        while "memory runs out" not in caplog.text and time.monotonic() < deadline:
            time.sleep(0.05)
    assert "memory runs out" in caplog.text
