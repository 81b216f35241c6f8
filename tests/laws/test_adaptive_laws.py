"""Laws of the coverage repair: the bound of the walk, reductions to plain calibration, invariances."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rangeline.conformal.adaptive import AdaptiveLevel, blend, start_level, update_level, without_prompts
from rangeline.conformal.density_ratio import fit_density_ratio
from rangeline.conformal.intervals import CalibrationSet, weighted_cutoffs

NUM_LEVELS = (3, 2)
ROWS = st.lists(
    st.tuples(st.integers(-1, 2), st.integers(-1, 1), st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=12
)
RATES = st.floats(0.001, 1)
TARGETS = st.floats(0.02, 0.5)


def calibration(rows, name="p"):
    """Make a calibration set of one row a prompt."""
    first, second, score, truth = zip(*rows, strict=True)
    ids = [f"{name}{i}" for i in range(len(rows))]
    levels = np.column_stack([first, second])
    return CalibrationSet.build(ids, levels, score_C=score, scale_C=np.ones(len(rows)), truth_C=truth)


def ratio_of(source, target):
    """Fit the density ratio of two calibration sets' states."""
    return fit_density_ratio(source.levels_CK, target.levels_CK, NUM_LEVELS)


def cutoffs(blended, levels, alpha=0.3):
    """Answer states by the blended rows."""
    log_C = blended.ratio.log_ratio(blended.rows.levels_CK) + blended.log_discount_C
    return weighted_cutoffs(blended.rows.nonconformity_C, log_C, blended.ratio.log_ratio(levels), alpha)


@given(target=TARGETS, rate=RATES, wanted=st.lists(st.floats(0, 1), min_size=1, max_size=200))
@settings(max_examples=200, deadline=None)
def test_no_sequence_of_misses_breaks_the_bound(target, rate, wanted):
    """Whatever an adversary does to intervals that are not unbounded, the mean miss stays within the walk's bound."""
    state, misses = start_level(target), []
    for miss in wanted:
        misses.append(miss if state.level > 0 else 0.0)
        state = update_level(state, [misses[-1]], rate=rate)
    assert np.mean(misses) <= target + (target + rate) / (rate * len(misses)) + 1e-9


@given(target=TARGETS, rate=RATES, miss=st.floats(0, 1), steps=st.integers(1, 200))
@settings(max_examples=100, deadline=None)
def test_the_level_used_stays_between_0_and_1(target, rate, miss, steps):
    """With no misses at all, with nothing but misses, or with any, intervals are made at a level inside (0, 1)."""
    for value in (0.0, miss, 1.0):
        state = start_level(target)
        for _ in range(steps):
            state = update_level(state, [value if state.level > 0 else 0.0], rate=rate)
            assert 0 < state.alpha < 1
            assert -rate <= state.level <= 1


@given(target=TARGETS, rate=RATES)
@settings(max_examples=50, deadline=None)
def test_a_kept_promise_keeps_the_level(target, rate):
    """Where misses are as many as promised, the level does not move."""
    state = start_level(target)
    for _ in range(20):
        state = update_level(state, [target], rate=rate)
    assert target == pytest.approx(state.level, abs=1e-12)


@given(misses=st.lists(st.floats(0, 1), min_size=1, max_size=20), seed=st.integers(0, 99))
@settings(max_examples=100, deadline=None)
def test_the_order_of_prompts_changes_no_bit_of_the_walk(misses, seed):
    """Prompts of an iteration in any order move the level alike."""
    shuffled = np.random.default_rng(seed).permutation(misses)
    one, other = (update_level(start_level(0.1), values, rate=0.3) for values in (misses, shuffled))
    assert one.level == other.level


@given(target=TARGETS, misses=st.lists(st.floats(0, 1), max_size=10))
@settings(max_examples=50, deadline=None)
def test_a_walk_comes_back_from_json_bit_for_bit(target, misses):
    """A stored walk goes on as the one that was never stored."""
    state = update_level(start_level(target), misses, rate=0.1)
    assert state == AdaptiveLevel.from_json(state.to_json())


@given(rows=ROWS, target=ROWS, discount=st.floats(0.01, 1))
@settings(max_examples=60, deadline=None)
def test_an_empty_window_is_plain_weighted_calibration(rows, target, discount):
    """Without audited rows, blending changes no bit of any cutoff, whatever the discount."""
    frozen, levels = calibration(rows), calibration(target).levels_CK
    ratio = ratio_of(frozen, calibration(target))
    plain = weighted_cutoffs(frozen.nonconformity_C, ratio.log_ratio(frozen.levels_CK), ratio.log_ratio(levels), 0.3)
    nothing = without_prompts(frozen, frozen.prompt_id_C)
    for recent in ([], [nothing]):
        assert (plain == cutoffs(blend(frozen, recent, ratio=ratio, discount=discount), levels)).all()


@given(rows=ROWS, recent=ROWS)
@settings(max_examples=60, deadline=None)
def test_rows_of_one_law_weigh_alike(rows, recent):
    """Without a shift and a discount, frozen and audited rows are one plain split-conformal set."""
    frozen, audited = calibration(rows), calibration(recent, "q")
    levels = audited.levels_CK
    scores = np.concatenate([frozen.nonconformity_C, audited.nonconformity_C])
    plain = weighted_cutoffs(scores, np.zeros(len(scores)), np.zeros(len(levels)), 0.3)
    assert (plain == cutoffs(blend(frozen, [audited], ratio=None, discount=1.0), levels)).all()


@given(rows=ROWS, recent=ROWS, seed=st.integers(0, 99), discount=st.floats(0.05, 1))
@settings(max_examples=60, deadline=None)
def test_the_order_of_rows_and_of_iterations_is_irrelevant(rows, recent, seed, discount):
    """Audited rows are exchangeable: neither their order nor the split of the window into iterations matters."""
    frozen = calibration(rows)
    ratio = ratio_of(frozen, calibration(recent))
    order = np.random.default_rng(seed).permutation(len(recent))
    cut = len(recent) // 2
    shuffled = [recent[i] for i in order]
    parts = [calibration(part, name) for part, name in ((shuffled[:cut], "a"), (shuffled[cut:], "b")) if part]
    whole = [calibration(recent, "q")]
    one, other = (cutoffs(blend(frozen, p, ratio=ratio, discount=discount), frozen.levels_CK) for p in (whole, parts))
    assert one == pytest.approx(other)


@given(rows=ROWS, recent=ROWS, discount=st.floats(0.05, 1))
@settings(max_examples=60, deadline=None)
def test_no_weight_exceeds_the_inverse_of_the_recent_share(rows, recent, discount):
    """A state that the frozen rows hardly know weighs at most one over the share of audited rows."""
    frozen, audited = calibration(rows), calibration(recent, "q")
    blended = blend(frozen, [audited], ratio=ratio_of(frozen, audited), discount=discount)
    recent_share = len(audited) / (len(audited) + discount * len(frozen))
    every = np.array([(a, b) for a in range(-1, 3) for b in range(-1, 2)])
    assert np.exp(blended.ratio.log_ratio(every)).max() <= (1 + 1e-12) / recent_share


@given(rows=ROWS, recent=ROWS)
@settings(max_examples=60, deadline=None)
def test_blended_weights_turn_the_mixture_into_the_target(rows, recent):
    """With the exact ratio, the mixture's mean weight is 1: the balance heuristic loses no mass."""
    frozen, audited = calibration(rows * 3), calibration(rows + recent, "q")
    counts = fit_density_ratio(
        frozen.levels_CK, audited.levels_CK, NUM_LEVELS, method="counts", regularisation=1e-9, log_cap=(-700, 700)
    )
    blended = blend(frozen, [audited], ratio=counts, discount=0.5)
    weight = np.exp(blended.ratio.log_ratio(blended.rows.levels_CK) + blended.log_discount_C)
    total = 0.5 * len(frozen) + len(audited)
    assert 1 == pytest.approx(weight.sum() / total, rel=1e-4)
