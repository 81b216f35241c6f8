"""Rows of rollout sets are taken and joined whole."""

import pytest
from reward_case import byte_worker, rollouts_of, row

from rangeline.errors import BadInputError
from rangeline.rollout.selection import join_rollouts, take_rollouts


@pytest.fixture(scope="module")
def rollouts():
    """Give three rollouts of two prompts."""
    worker, _ = byte_worker()
    return rollouts_of(worker, [row("p"), row("q")], [("p", "a"), ("q", "b"), ("p", "c")])


def test_rows_are_taken_in_the_order_asked_for(rollouts):
    """Every column follows."""
    taken = take_rollouts(rollouts, [2, 0])
    assert (("p", "p"), ("c", "a"), (1, 0)) == (taken.prompt_id_N, taken.completion_N, taken.sample_N)
    assert rollouts.token_ids_N[2] == taken.token_ids_N[0]


def test_parts_join_to_the_whole(rollouts):
    """Taking rows apart and joining them gives the set again."""
    joined = join_rollouts([take_rollouts(rollouts, [0, 1]), take_rollouts(rollouts, [2])])
    assert (rollouts.completion_N, rollouts.sample_N) == (joined.completion_N, joined.sample_N)


def test_nothing_to_join_is_refused():
    """No part has no policy version."""
    with pytest.raises(BadInputError, match=r"one policy version; got \[\]"):
        join_rollouts([])
