"""RLPR's arithmetic: the paper's worked numbers, clip, format, penalty, references and ablations."""

import numpy as np
import pytest

from rangeline.errors import ConfigError
from rangeline.rewards.reference_probability import (
    add_terms,
    aggregate_probabilities,
    combine_references,
    count_repeats,
    reference_intervals,
)


def _log(*probabilities):
    return np.log(np.array(probabilities))


@pytest.mark.parametrize(
    ("probabilities", "mean", "product"), [((0.01, 0.7, 0.9), 0.537, 0.0063), ((0.05, 0.7, 0.9), 0.550, 0.0315)]
)
def test_papers_numbers(probabilities, mean, product):
    """One unlikely token moves the mean by a hundredth and the product five times."""
    assert mean == round(aggregate_probabilities(_log(*probabilities)), 3)
    assert product == round(aggregate_probabilities(_log(*probabilities), "product"), 4)


def test_root_is_the_geometric_mean():
    """The n-th root of the product: of .25 and 1 it is .5."""
    assert aggregate_probabilities(_log(0.25, 1.0), "root") == pytest.approx(0.5)


def _reward(gain, *, formed=True, missing=False, **settings):
    made = reference_intervals(
        ("p",), np.array([gain]), well_formed_N=np.array([formed]), missing_N=np.array([missing]), **settings
    )
    return None if made.missing_N[0] else float(made.lower_N[0])


def test_debiased_reward_is_the_papers():
    """Probabilities (.5, .7, .9) with r' = .3 give .4."""
    assert pytest.approx(0.4) == _reward(aggregate_probabilities(_log(0.5, 0.7, 0.9)) - 0.3)


@pytest.mark.parametrize(("gain", "expected"), [(-0.2, 0.0), (0.0, 0.0), (1.4, 1.0)])
def test_reward_is_clipped(gain, expected):
    """A probability that fell earns 0, never less; above 1 nothing is earned."""
    assert expected == _reward(gain)


def test_ill_formed_rollout_earns_zero_and_a_lost_one_nothing():
    """No reasoning or answer is 0, whatever the gain says; cut off or ambiguous is missing, and so is a NaN."""
    assert 0.0 == _reward(float("nan"), formed=False)
    assert _reward(0.5, missing=True) is None
    assert _reward(float("nan")) is None


def test_format_takes_its_share():
    """With weight .1 a gain of .5 in good form earns .9 * .5 + .1, and bad form earns 0."""
    assert pytest.approx(0.55) == _reward(0.5, format_weight=0.1)
    assert 0.0 == _reward(0.5, formed=False, format_weight=0.1)


def test_repeats_are_counted_by_passages_of_ten_words():
    """Fewer than eleven words repeat nothing; a passage written three times repeats, and ten is the most."""
    passage = "a b c d e f g h i j "
    assert (0, 0) == (count_repeats(""), count_repeats(passage))
    assert 10 == count_repeats(passage * 9)


def test_terms_are_added():
    """A repeat costs the penalty, a right answer earns the verifier's weight, an unverified one is missing."""
    base = reference_intervals(
        ("p",) * 3, np.full(3, 0.5), well_formed_N=np.ones(3, dtype=bool), missing_N=np.zeros(3, dtype=bool)
    )
    made = add_terms(
        base, repeats_N=(0, 2, 0), repetition_penalty=0.1, verified_N=np.array([1.0, 0.0, np.nan]), verifier_weight=1.0
    )
    assert [pytest.approx(1.5), pytest.approx(0.3)] == made.center_N[:2].tolist()
    assert [False, False, True] == made.missing_N.tolist()
    assert (-1.0, 2.0) == made.support


def test_penalty_alone_does_not_ask_the_verifier():
    """Without a verifier weight an unverified rollout keeps its reward."""
    base = reference_intervals(("p",), np.array([0.5]), well_formed_N=np.array([True]), missing_N=np.array([False]))
    made = add_terms(base, repeats_N=(1,), repetition_penalty=0.1, verified_N=np.array([np.nan]))
    assert [pytest.approx(0.4)] == made.center_N.tolist()


def test_several_references_give_best_or_mean():
    """The best or the mean of those that could be scored; none gives NaN."""
    assert (0.4, 0.3) == (combine_references([0.2, 0.4], "best"), pytest.approx(combine_references([0.2, 0.4], "mean")))
    assert combine_references([float("nan"), 0.1], "mean") == 0.1
    assert np.isnan(combine_references([float("nan")], "best"))


def test_unusable_arguments_are_refused():
    """No token and no such aggregate are errors, not zeros."""
    with pytest.raises(ConfigError, match="at least one token; got 0"):
        aggregate_probabilities(np.array([]))
    with pytest.raises(ConfigError, match="mean, product or root; got 'median'"):
        aggregate_probabilities(_log(0.5), "median")
