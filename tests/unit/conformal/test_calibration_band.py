"""Unit tests of the bands of coverage given the calibration set, against exact rational arithmetic."""

import math
from fractions import Fraction

import numpy as np
import pytest

from rangeline.conformal.calibration_band import calibration_rank, coverage_band, covered_count_band
from rangeline.conformal.intervals import weighted_cutoffs
from rangeline.errors import CalibrationError


def beta_cdf(rank, above, at):
    """Distribution function of Beta(rank, above) for whole parameters, as an exact binomial tail."""
    num, x = rank + above - 1, Fraction(at)
    return sum(math.comb(num, j) * x**j * (1 - x) ** (num - j) for j in range(rank, num + 1))


def count_mass(num_fresh, rank, above, count):
    """Exact beta-binomial mass for whole parameters."""

    def beta(a, b):
        return Fraction(math.factorial(a - 1) * math.factorial(b - 1), math.factorial(a + b - 1))

    return math.comb(num_fresh, count) * beta(rank + count, above + num_fresh - count) / beta(rank, above)


@pytest.mark.parametrize("alpha", [Fraction(1, 20), Fraction(1, 10), Fraction(1, 5), Fraction(8, 25)])
def test_rank_is_the_exact_one(alpha):
    """The rank equals ceil((n + 1)(1 - alpha)) in exact arithmetic for every n to 400."""
    wanted = [math.ceil((n + 1) * (1 - alpha)) for n in range(1, 401)]
    assert wanted == [calibration_rank(n, float(alpha)) for n in range(1, 401)]


@pytest.mark.parametrize("num", [1, 8, 9, 19, 20, 74, 99])
def test_rank_is_that_of_the_cutoff(num):
    """The weighted cutoff with unit weights is the score of this rank, infinite where the rank is n + 1."""
    rank = calibration_rank(num, 0.1)
    cutoff = weighted_cutoffs(np.arange(1, num + 1), np.zeros(num), [0.0], 0.1)[0]
    assert (rank if rank <= num else math.inf) == cutoff


@pytest.mark.parametrize(("num", "alpha"), [(9, 0.1), (50, 0.1), (39, 0.2), (100, 0.05)])
def test_coverage_band_ends_are_beta_quantiles(num, alpha):
    """The exact distribution function at the ends gives back the tails."""
    rank = calibration_rank(num, alpha)
    low, high = coverage_band(num, alpha, confidence=0.9)
    assert [0.05, 0.95] == pytest.approx([float(beta_cdf(rank, num + 1 - rank, end)) for end in (low, high)], abs=1e-9)


@pytest.mark.parametrize(("num", "fresh"), [(9, 5), (50, 16), (99, 40)])
def test_count_band_ends_are_the_smallest_with_the_tails(num, fresh):
    """Less than the tail lies below the lower end, at most the tail above the upper end, and not one step further."""
    rank, above = calibration_rank(num, 0.1), num + 1 - calibration_rank(num, 0.1)
    low, high = covered_count_band(num, fresh, alpha=0.1, confidence=0.9)
    mass = [count_mass(fresh, rank, above, count) for count in range(fresh + 1)]
    tail = Fraction(1, 20)
    assert sum(mass) == 1
    assert sum(mass[:low]) < tail <= sum(mass[: low + 1])
    assert sum(mass[:high]) < 1 - tail <= sum(mass[: high + 1])


def test_mean_of_the_count_is_the_marginal_coverage():
    """Averaged over calibration sets, coverage is k / (n + 1), at least 1 - alpha."""
    rank = calibration_rank(20, 0.1)
    mean = sum(count * count_mass(10, rank, 21 - rank, count) for count in range(11)) / 10
    assert Fraction(rank, 21) == mean
    assert mean >= Fraction(9, 10)


def test_infinite_cutoff_covers_everything():
    """Eight rows at alpha .1 give the whole support, which covers always."""
    assert ((1.0, 1.0), (5, 5)) == (coverage_band(8, 0.1), covered_count_band(8, 5, alpha=0.1))


def test_band_narrows_with_rows():
    """A larger calibration set says more about its coverage."""
    bands = [coverage_band(n, 0.1) for n in (32, 128, 512, 2048)]
    widths = [high - low for low, high in bands]
    assert sorted(widths, reverse=True) == widths
    assert all(low < 0.9 < high for low, high in bands)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: coverage_band(0, 0.1), r"'num_calibration' must be 1 or more; got 0"),
        (lambda: coverage_band(9, math.nan), r"'alpha' must lie in \(0, 1\); got nan"),
        (lambda: coverage_band(9, 0.1, confidence=1.0), r"'confidence' must lie in \(0, 1\); got 1.0"),
        (lambda: covered_count_band(9, 0, alpha=0.1), r"'num_fresh' must be 1 or more; got 0"),
        (lambda: calibration_rank(9, 1.0), r"'alpha' must lie in \(0, 1\); got 1.0"),
    ],
)
def test_numbers_out_of_range_are_refused(call, message):
    """Shares lie strictly between 0 and 1, counts are positive."""
    with pytest.raises(CalibrationError, match=message):
        call()
