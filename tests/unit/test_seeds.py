"""Random streams: the key decides, nothing else does."""

import numpy as np
import pytest

from rangeline.seeds import seed_of, stream


def test_equal_keys_give_equal_draws():
    """A stream is a function of its key."""
    np.testing.assert_array_equal(stream(7, "rollout", 3, "p").random(4), stream(7, "rollout", 3, "p").random(4))


@pytest.mark.parametrize(
    "key", [(8, "r", 3), (7, "s", 3), (7, "r", 4), (7, "r"), (7, "r", "3"), (7, "r3"), (7, 3, "r")]
)
def test_any_change_of_the_key_changes_the_draws(key):
    """Another seed, word, number, type, length or order gives another stream."""
    assert (stream(7, "r", 3).random(4) != stream(*key).random(4)).all()


def test_draws_of_one_stream_do_not_move_another():
    """Streams share no state: drawing from one first changes nothing in the other."""
    first = stream(1, "a")
    other = stream(1, "b")
    first.random(100)
    np.testing.assert_array_equal(stream(1, "b").random(3), other.random(3))


def test_global_generator_is_left_alone():
    """Making and using a stream neither reads nor moves numpy's global state."""
    np.random.seed(0)
    expected = np.random.get_state()[1].copy()
    stream(1, "a").random(3)
    np.testing.assert_array_equal(expected, np.random.get_state()[1])


def test_streams_are_the_same_on_every_machine():
    """Known draws: a run that is resumed elsewhere goes on with the same numbers."""
    assert (1653905090946614414, 5744485911398661926) == (seed_of(7, "a"), seed_of(-1, "a", 2))


@pytest.mark.parametrize("seed", [0, -3, 2**70])
def test_any_integer_is_a_seed(seed):
    """Negative and large seeds are seeds; the derived one fits 63 bits."""
    assert 0 <= seed_of(seed, "x") < 2**63 - 1


def test_numpy_integers_are_integers():
    """A numpy integer as run seed is the same seed."""
    assert seed_of(5, "x") == seed_of(np.int64(5), "x")
