"""Laws of the learning rate's schedule."""

import math

import pytest

from rangeline.policy.schedule import schedule_factor


def factors(kind, count, **settings):
    """Return the factors of the first steps."""
    factor = schedule_factor(kind, **{"warmup_steps": 0, "num_steps": 0, **settings})
    return [factor(taken) for taken in range(count)]


def test_constant_stays():
    """Without a warm-up the constant schedule is 1 at every step."""
    assert [1.0] * 4 == factors("constant", 4)


@pytest.mark.parametrize("kind", ["constant", "linear", "cosine"])
def test_warm_up_rises_evenly_and_wastes_no_step(kind):
    """Four steps of warm-up have factors 1/4, 1/2, 3/4 and 1: the first step moves already."""
    assert [0.25, 0.5, 0.75, 1.0] == pytest.approx(factors(kind, 4, warmup_steps=4, num_steps=12))


def test_linear_falls_evenly():
    """After the warm-up the linear schedule falls evenly, and is 0 once the run is over."""
    assert [1.0, 0.75, 0.5, 0.25, 0.0, 0.0] == pytest.approx(factors("linear", 6, num_steps=4))


def test_cosine_is_half_a_wave():
    """The cosine schedule is (1 + cos(pi t)) / 2 of the way t."""
    expected = [(1 + math.cos(math.pi * t / 4)) / 2 for t in range(4)]
    assert expected == pytest.approx(factors("cosine", 4, num_steps=4))


def test_a_factor_depends_on_the_count_alone():
    """Asked again, or in another order, a step has the same factor: nothing is remembered."""
    factor = schedule_factor("cosine", warmup_steps=2, num_steps=9)
    forwards = [factor(taken) for taken in range(9)]
    assert forwards[::-1] == [factor(taken) for taken in reversed(range(9))]
