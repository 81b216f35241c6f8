import math

import pytest

from rangeline.errors import BadInputError
from rangeline.evaluation.comparison import paired_difference, sign_flip_p_value

BEFORE = {"a": 0.0, "b": 0.5, "c": 1.0, "d": 0.25}
AFTER = {"a": 1.0, "b": 0.5, "c": 0.5, "d": 0.5}


def test_mean_and_counts_are_those_worked_by_hand():
    """Changes 1, 0, -.5, .25 have mean .1875, two better, one worse."""
    change = paired_difference(BEFORE, AFTER, seed=0)
    assert change.mean == 0.1875
    assert (change.num_shared, change.num_better, change.num_worse, change.num_unshared) == (4, 2, 1, 0)
    assert change.lower < change.mean < change.upper


def test_prompts_are_paired_by_id_and_not_by_position():
    """Another order of prompts gives the same comparison."""
    assert paired_difference(BEFORE, AFTER, seed=0) == paired_difference(BEFORE, dict(reversed(AFTER.items())), seed=0)


def test_swapping_sides_turns_the_sign():
    """The difference from after to before is the negative one, with the same p-value."""
    forth, back = paired_difference(BEFORE, AFTER, seed=0), paired_difference(AFTER, BEFORE, seed=0)
    assert -forth.mean == back.mean
    assert forth.p_value == back.p_value


def test_prompts_without_a_partner_are_left_out_and_counted():
    """A prompt that one side lacks, or holds as NaN, changes nothing but its count."""
    plain = paired_difference(BEFORE, AFTER, seed=0)
    more = paired_difference(BEFORE | {"x": 0.0, "y": math.nan}, AFTER | {"y": 1.0}, seed=0)
    assert (plain.mean, plain.lower, plain.upper) == (more.mean, more.lower, more.upper)
    assert (more.num_shared, more.num_unshared) == (4, 2)


def test_sign_test_is_exact():
    """Six prompts better and none worse have a two-sided chance of 2 / 2^6."""
    before, after = dict.fromkeys("abcdef", 0.0), dict.fromkeys("abcdef", 1.0)
    assert pytest.approx(2 / 64) == paired_difference(before, after, seed=0).p_value


def test_nothing_moved_is_no_evidence_and_no_certainty():
    """Equal sides give p = 1 and an interval of positive width around 0."""
    change = paired_difference(BEFORE, BEFORE, seed=0)
    assert (change.mean, change.p_value, change.num_better, change.num_worse) == (0.0, 1.0, 0, 0)
    assert pytest.approx(1 - 0.025 ** (1 / 4)) == change.upper
    assert -change.upper == change.lower


def test_equal_unbounded_changes_have_no_interval():
    """Without a range of rewards, equal changes leave the interval unknown."""
    change = paired_difference({"a": 3.0, "b": 4.0}, {"a": 5.0, "b": 6.0}, seed=0)
    assert (change.mean, change.lower, change.upper) == (2.0, None, None)


def test_no_shared_prompt_is_refused():
    """Two evaluations of different prompts cannot be compared."""
    with pytest.raises(BadInputError, match=r"must share a prompt with a reward; got 1 and 1 prompts, none shared"):
        paired_difference({"a": 1.0}, {"b": 1.0}, seed=0)


def test_infinite_value_is_refused_with_its_prompt():
    """An infinite mean is a broken evaluation."""
    with pytest.raises(BadInputError, match=r"'after_by_prompt' must be finite, or NaN .*got inf \(prompt 'a'\)"):
        paired_difference({"a": 1.0}, {"a": math.inf}, seed=0)


def test_nothing_moved_leaves_the_mean_test_without_evidence():
    """Without a change both tests give 1."""
    assert paired_difference(BEFORE, BEFORE, seed=0).mean_p_value == 1.0


def test_drawn_test_is_reproducible_and_knows_no_order():
    """The same changes in another order have the same drawn p-value."""
    changes = [0.1 * i - 0.7 for i in range(24)]
    assert sign_flip_p_value(changes, seed=3) == sign_flip_p_value(changes[::-1], seed=3)


def test_drawn_test_is_never_zero():
    """However large the change, a drawn p-value counts the observed pattern itself."""
    assert 0 < sign_flip_p_value([1.0] * 40, seed=0) < 0.001
