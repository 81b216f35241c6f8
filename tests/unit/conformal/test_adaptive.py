"""Coverage repair: hand-worked steps, what is left out, and what is refused."""

import math

import numpy as np
import pytest

from rangeline.conformal.adaptive import (
    BlendedRatio,
    blend,
    join_calibration,
    start_level,
    update_level,
    without_prompts,
)
from rangeline.conformal.density_ratio import fit_density_ratio
from rangeline.conformal.intervals import CalibrationSet
from rangeline.errors import CalibrationError


def rows_of(ids, levels, truths):
    """Make a calibration set whose scores are all one half."""
    half = [0.5] * len(ids)
    return CalibrationSet.build(ids, levels, score_C=half, scale_C=np.ones(len(ids)), truth_C=truths)


FROZEN = rows_of("ab", [[0], [1]], [0.5, 1.0])
RECENT = rows_of("ccd", [[0], [0], [1]], [0.0, 0.5, 0.75])


def test_the_level_falls_by_the_excess_of_misses():
    """A mean miss of .4 where .1 is promised takes .3 of a step from the level."""
    state = update_level(start_level(0.1), [0.8, 0.0], rate=0.1)
    assert (0.07, 1) == (pytest.approx(state.level), state.num_updates)


def test_an_iteration_without_evidence_leaves_the_walk():
    """No valid prompt: the very same state goes on."""
    state = start_level(0.1)
    assert update_level(state, [], rate=0.5) is state


def test_rate_0_keeps_the_promised_level():
    """Without a step size the level is the promised one for ever."""
    assert 0.1 == update_level(start_level(0.1), [1.0], rate=0.0).alpha


def test_the_joined_rows_keep_their_order_and_their_scores():
    """Frozen rows come first, audited ones after, each with its own score."""
    blended = blend(FROZEN, [RECENT], ratio=None, discount=0.5)
    assert tuple("abccd") == blended.rows.prompt_id_C
    assert [0.0, 0.5, 0.5, 0.0, 0.25] == blended.rows.nonconformity_C.tolist()
    assert 3 == blended.num_recent
    assert [0.5, 0.5, 1, 1, 1] == pytest.approx(np.exp(blended.log_discount_C).tolist())


def test_weights_are_those_of_the_mixture():
    """With two frozen rows at half a count and three audited ones, f is 1/4 and w becomes 1 / (f / w + 1 - f)."""
    ratio = fit_density_ratio([[0], [1]], [[0]] * 5, (2,))
    blended = blend(FROZEN, [RECENT], ratio=ratio, discount=0.5)
    raw = np.exp(ratio.log_ratio([[0], [1]]))
    expected = 1 / (0.25 / raw + 0.75)
    assert expected == pytest.approx(np.exp(blended.ratio.log_ratio([[0], [1]])))


def test_frozen_rows_may_be_none():
    """With audited rows only, each weighs the same."""
    nothing = without_prompts(FROZEN, "ab")
    blended = blend(nothing, [RECENT], ratio=None, discount=0.5)
    assert [0.0, 0.0] == blended.ratio.log_ratio([[0], [1]]).tolist()
    assert 3 == len(blended.rows)


def test_rows_of_named_prompts_are_left_out():
    """A prompt's rows go, all others stay in their order."""
    assert ("d",) == without_prompts(RECENT, ["c"]).prompt_id_C
    assert [0.25] == without_prompts(RECENT, ["c"]).nonconformity_C.tolist()


def test_a_share_of_1_is_the_ratio_itself():
    """Without audited rows the blended ratio is the density ratio, bit for bit."""
    ratio = fit_density_ratio([[0], [1]], [[0], [0], [1]], (2,))
    levels = [[0], [1], [-1]]
    assert (ratio.log_ratio(levels) == BlendedRatio(ratio=ratio, frozen_share=1.0).log_ratio(levels)).all()


@pytest.mark.parametrize("discount", [0.0, -1.0, 1.5, math.nan])
def test_a_discount_is_a_share(discount):
    """A frozen row counts more than nothing and no more than one row."""
    with pytest.raises(CalibrationError, match="'discount' must lie in"):
        blend(FROZEN, [RECENT], ratio=None, discount=discount)


@pytest.mark.parametrize("rate", [-0.1, 1.1, math.nan])
def test_a_rate_is_a_share(rate):
    """A step may not be negative, nor larger than the whole range of levels."""
    with pytest.raises(CalibrationError, match="'rate' must lie in"):
        update_level(start_level(0.1), [0.0], rate=rate)


@pytest.mark.parametrize("missed", [[1.5], [-0.1], [math.nan]])
def test_misses_are_rates(missed):
    """A miss rate outside [0, 1], or none, is refused with its row."""
    with pytest.raises(CalibrationError, match="'missed_P' must lie in"):
        update_level(start_level(0.1), missed, rate=0.1)


@pytest.mark.parametrize("target", [0.0, 1.0, math.nan])
def test_a_target_lies_inside_0_and_1(target):
    """A promise of no misses, or of nothing but misses, is none."""
    with pytest.raises(CalibrationError, match="alpha"):
        start_level(target)


def test_sets_of_other_coordinates_cannot_be_joined():
    """Rows judged by another rubric are refused."""
    with pytest.raises(CalibrationError, match="one number of coordinates"):
        join_calibration([FROZEN, rows_of("x", [[0, 0]], [1.0])])
