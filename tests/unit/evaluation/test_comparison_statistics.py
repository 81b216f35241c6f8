"""Statistics over seeds, by hand."""

import itertools
import math

import numpy as np
import pytest

from rangeline.errors import BadInputError
from rangeline.evaluation.comparison_statistics import (
    FlipCount,
    count_flips,
    difference_over_seeds,
    mean_over_seeds,
    sign_flip_p_value,
)


def test_mean_and_standard_error_by_hand():
    """The standard error is the sample deviation, by n - 1, over the root of n."""
    result = mean_over_seeds([0.1, 0.2, 0.6])
    assert (0.3, math.sqrt(0.07 / 3), 3) == pytest.approx((result.mean, result.standard_error, result.num_seeds))


def test_a_missing_seed_is_no_zero():
    """What is not known leaves mean and count; one seed has no error, none no mean."""
    assert mean_over_seeds([0.5]) == mean_over_seeds([None, 0.5])
    assert mean_over_seeds([0.5]).standard_error is None
    assert mean_over_seeds([None]).mean is None


def test_sign_flips_are_counted_exactly():
    """The p-value is the share of the 2^n sign patterns at least as extreme, both sides together."""
    difference = [0.3, -0.1, 0.4, 0.2, 0.25]
    means = [np.dot(signs, np.abs(difference)) / 5 for signs in itertools.product((1, -1), repeat=5)]
    by_hand = np.mean(np.abs(means) >= abs(np.mean(difference)) - 1e-12)
    assert by_hand == pytest.approx(sign_flip_p_value(difference))
    assert 2 / 2**10 == sign_flip_p_value(np.arange(1.0, 11.0))
    assert 1.0 == sign_flip_p_value([0.7])


def test_only_shared_seeds_count():
    """A seed that one method lacks is in no difference; wins are strict."""
    change = difference_over_seeds({1: 0.5, 2: 0.7, 3: 0.2, 9: 0.0}, {1: 0.4, 2: 0.7, 3: 0.3, 8: 1.0})
    assert (0.0, 3, 1, 1) == (pytest.approx(change.mean), change.num_seeds, change.num_wins, change.num_losses)
    assert change.lower <= change.mean <= change.upper


def test_pairing_takes_the_seeds_own_level_out():
    """A constant advantage over seeds of very different level is seen without error."""
    other = {seed: 0.1 * seed for seed in range(8)}
    change = difference_over_seeds({seed: value + 0.05 for seed, value in other.items()}, other)
    assert 0.05 == pytest.approx(change.lower) == pytest.approx(change.upper)
    assert 2 / 2**8 == change.p_value


def test_swapped_methods_give_the_mirrored_interval():
    """Reference minus other is other minus reference with the sign turned."""
    a, b = {0: 0.5, 1: 0.8, 2: 0.6, 3: 0.9}, {0: 0.4, 1: 0.9, 2: 0.3, 3: 0.5}
    ours, theirs = difference_over_seeds(a, b), difference_over_seeds(b, a)
    assert (ours.mean, ours.p_value) == pytest.approx((-theirs.mean, theirs.p_value))
    assert (ours.num_wins, ours.num_losses) == (theirs.num_losses, theirs.num_wins)


def test_methods_without_a_shared_seed_are_refused():
    """Nothing is paired where no seed is shared."""
    with pytest.raises(BadInputError, match="Methods must share a seed to be compared"):
        difference_over_seeds({0: 0.5}, {1: 0.5})


def test_a_result_that_is_not_finite_is_refused():
    """The seed is named."""
    with pytest.raises(BadInputError, match=r"Results must be finite; got nan and 0.5 \(seed 4\)"):
        difference_over_seeds({4: math.nan}, {4: 0.5})


def test_flips_and_who_was_right():
    """Of two flips the truth agrees with one; a flip at the group's true mean is neither; rows without credit, none."""
    value = [0.1, -0.1, -0.2, 0.3, 0.0]
    midpoint = [-0.1, 0.2, -0.1, -0.3, 0.2]
    truth = [1.0, 1.0, 0.0, 2 / 3, np.nan]
    flips = count_flips(value, midpoint, truth, ["p"] * 5)
    assert FlipCount(num_credited=4, num_flips=3, num_agree=1, num_disagree=1) == flips


def test_flips_without_a_truth():
    """Where no truth is known, nobody was right or wrong; sums stay unknown."""
    flips = count_flips([1.0, -1.0], [-1.0, -1.0], None, ["p", "p"])
    assert (1, None) == (flips.num_flips, flips.num_agree)
    both = flips + FlipCount(num_credited=5, num_flips=2, num_agree=1, num_disagree=1)
    assert FlipCount(num_credited=7, num_flips=3, num_agree=None, num_disagree=None) == both


def test_truth_is_centered_within_its_group():
    """Groups of other level do not move the sign of a group's truth, whatever the order of rows."""
    value, midpoint = np.array([1.0, -1.0, 1.0, -1.0]), np.array([-1.0, 1.0, -1.0, 1.0])
    truth, ids = np.array([0.2, 0.1, 0.9, 0.8]), np.array(["p", "p", "q", "q"])
    order = [2, 0, 3, 1]
    assert count_flips(value, midpoint, truth, ids.tolist()).num_agree == 4
    assert count_flips(value[order], midpoint[order], truth[order], ids[order].tolist()).num_agree == 4
