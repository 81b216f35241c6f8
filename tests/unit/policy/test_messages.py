"""Laws of the messages between a run and the processes of its policy."""

import math
import socket
from pathlib import Path

import numpy as np
import pytest

from rangeline.policy.messages import receive, send
from rangeline.records import SamplingPlan


@pytest.fixture
def pair():
    """Give two connected sockets."""
    one, two = socket.socketpair()
    with one, two:
        yield one, two


def test_message_arrives_as_it_was_sent(pair):
    """Numbers, texts, lists, records, paths and arrays of every type keep their values."""
    arrays = {"ids": np.arange(6).reshape(2, 3), "mask": np.array([True, False]), "none": np.zeros((0, 2), np.float32)}
    send(pair[0], {"call": "é", "plan": SamplingPlan(group_size=2), "path": Path("/a"), "deep": [{"array": arrays}]})
    found = receive(pair[1])
    assert {"group_size": 2, "temperature": 1.0, "max_tokens": 16} == found["plan"]
    assert ("é", "/a") == (found["call"], found["path"])
    for name, array in found["deep"][0]["array"].items():
        assert arrays[name].dtype == array.dtype
        assert np.array_equal(arrays[name], array)


def test_numbers_that_are_not_finite_arrive(pair):
    """A log-prob of minus infinity stays one, and floats keep every bit."""
    send(pair[0], {"values": (-math.inf, 0.1, math.nan)})
    low, tenth, nothing = receive(pair[1])["values"]
    assert (-math.inf, 0.1) == (low, tenth)
    assert math.isnan(nothing)


def test_messages_do_not_run_into_each_other(pair):
    """Two messages in a row are two messages."""
    send(pair[0], {"number": 1})
    send(pair[0], {"number": 2, "array": np.ones(3)})
    assert [1, 2] == [receive(pair[1])["number"], receive(pair[1])["number"]]


def test_end_in_the_middle_of_a_message_is_an_end(pair):
    """A sender that dies while it writes is gone, and nothing half-read is given."""
    pair[0].sendall(b"\x00" * 7)
    pair[0].close()
    with pytest.raises(EOFError, match=r"^$"):
        receive(pair[1])
