"""Unit tests of the conformal test martingale and its p-values."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from rangeline.conformal.drift import DriftState, start_drift, update_drift
from rangeline.conformal.intervals import CalibrationSet
from rangeline.conformal.p_values import conformal_p_value
from rangeline.errors import CalibrationError


def calibration(num=24):
    """Make rows of two states, two a prompt, whose scores .25 and .75 are right on average."""
    state = np.arange(num) // 2 % 2
    truth = (np.arange(num) % 8 < np.where(state, 6, 2)).astype(float)
    return CalibrationSet.build(
        [f"c{i // 2}" for i in range(num)],
        state[:, None],
        score_C=0.25 + 0.5 * state,
        scale_C=np.ones(num),
        truth_C=truth,
    )


def rows(seed, num=12):
    """Make audited rows of one iteration: ids, states and nonconformity scores."""
    random = np.random.default_rng(seed)
    return [f"p{i // 2}" for i in range(num)], random.integers(0, 2, (num, 1)), random.choice([0.25, 0.75], num)


def step(state, iteration, *, order=slice(None), **changes):
    """Update with the rows of an iteration in some order."""
    ids, levels, scores = rows(iteration)
    given = {"iteration": iteration, "levels_NK": levels[order], "nonconformity_N": scores[order], **changes}
    return update_drift(state, np.array(ids)[order].tolist(), **given)


def test_p_value_by_hand():
    """Weights 1, 2, 4 and own 1: (4 + u (2 + 1)) / 8 with one score above and one tied."""
    logs = np.log([1.0, 2.0, 4.0])
    p_values = [
        conformal_p_value(0.5, 0.0, score_B=[0.1, 0.5, 0.9], log_weight_B=logs, uniform=u) for u in (1 / 3, 1.0)
    ]
    assert [5 / 8, 7 / 8] == pytest.approx(p_values)


def test_p_value_ignores_the_scale_of_weights_and_rows_of_weight_zero():
    """Only ratios of weights matter; -inf is the same as leaving the row out."""
    plain = conformal_p_value(0.4, 0.0, score_B=[0.1, 0.9], log_weight_B=[0.0, 1.0], uniform=0.5)
    scaled = conformal_p_value(0.4, 700.0, score_B=[0.1, 0.9], log_weight_B=[700.0, 701.0], uniform=0.5)
    without = conformal_p_value(0.4, 0.0, score_B=[0.1, 0.9, 0.7], log_weight_B=[0.0, 1.0, -math.inf], uniform=0.5)
    assert [plain, plain] == pytest.approx([scaled, without])


def test_p_value_alone_is_the_uniform():
    """Without another row nothing but the tie-break is left, and it is never 0."""
    assert 0.3 == conformal_p_value(0.4, 0.0, score_B=[], log_weight_B=[], uniform=0.3)
    assert conformal_p_value(0.4, -1e6, score_B=[0.1], log_weight_B=[0.0], uniform=0.3) > 0


def test_one_row_a_prompt_is_kept():
    """Twelve calibration prompts and six audited ones leave eighteen rows, whatever their group sizes."""
    state = step(start_drift(calibration()), 1)
    assert 18 == len(state.levels_B) == len(state.nonconformity_B) == len(state.log_ratio_B)
    assert 6 == state.num_bets


def test_order_of_rows_changes_no_bit():
    """Reversed calibration rows and reversed audited rows give the same state."""
    plain, built = start_drift(calibration()), calibration()
    reverse = CalibrationSet(
        prompt_id_C=built.prompt_id_C[::-1],
        levels_CK=built.levels_CK[::-1],
        score_C=built.score_C[::-1],
        scale_C=built.scale_C[::-1],
        truth_C=built.truth_C[::-1],
        nonconformity_C=built.nonconformity_C[::-1],
    )
    assert plain == start_drift(reverse)
    assert step(plain, 1) == step(plain, 1, order=slice(None, None, -1))


@pytest.mark.parametrize("scope", ["state", "pooled"])
def test_resumed_martingale_equals_the_uninterrupted(scope):
    """A state through JSON text after every iteration ends in the same bits."""
    changes = {"log_ratio": lambda levels: np.asarray(levels)[:, 0] / 3} if scope == "pooled" else {}
    straight = resumed = start_drift(calibration(), scope=scope)
    for iteration in range(1, 6):
        straight = step(straight, iteration, **changes)
        resumed = DriftState.from_json(json.loads(json.dumps(step(resumed, iteration, **changes).to_json())))
    assert straight == resumed


def test_one_state_reduces_to_no_weights():
    """Where all rows share one state and nothing has shifted, both scopes bet alike."""
    built = calibration()
    same = CalibrationSet.build(
        built.prompt_id_C,
        np.zeros((24, 1), dtype=int),
        score_C=built.score_C,
        scale_C=np.ones(24),
        truth_C=built.truth_C,
    )
    changes = {"levels_NK": np.zeros((12, 1), dtype=int)}
    apart = step(start_drift(same), 1, **changes)
    pooled = step(start_drift(same, scope="pooled"), 1, log_ratio=lambda levels: np.zeros(len(levels)), **changes)
    assert apart.log_wealth_J == pooled.log_wealth_J


def test_unseen_states_are_kept_and_not_bet_on():
    """Fewer than four rows of a state say nothing of a place among them."""
    state = update_drift(
        start_drift(calibration()), ["a", "b"], iteration=1, levels_NK=[[7], [7]], nonconformity_N=[0.1, 9.0]
    )
    assert (0, 14) == (state.num_bets, len(state.levels_B))


def test_alarm_stays():
    """Scores far above all kept ones alarm, and quiet iterations afterwards do not take it back."""
    state = start_drift(calibration(64))
    for iteration in range(1, 4):
        ids = [f"{iteration}/{i}" for i in range(12)]
        levels, scores = np.arange(12)[:, None] % 2, np.full(12, 1.0 + iteration)
        state = update_drift(state, ids, iteration=iteration, levels_NK=levels, nonconformity_N=scores)
    first = state.alarm_at
    assert state.alarm
    assert first == step(state, 9).alarm_at
    assert state.log_wealth > math.log(20)


def test_no_rollout_changes_nothing():
    """An iteration without a valid rollout is no observation."""
    state = start_drift(calibration())
    empty = np.empty((0, 1), dtype=int)
    assert state is update_drift(state, [], iteration=1, levels_NK=empty, nonconformity_N=[])


@pytest.mark.parametrize(
    ("ids", "levels", "scores", "message"),
    [
        (["a", "b"], [[0], [1]], [0.1, math.nan], r"got nan \(row 1, prompt 'b'\)"),
        (["a"], [[0]], [-0.5], r"got -0.5 \(row 0, prompt 'a'\)"),
        (["a"], [[0]], [math.inf], r"got inf \(row 0, prompt 'a'\)"),
        (["a"], [[0.5]], [0.1], "of whole numbers; got float64"),
        (["a"], [[0], [1]], [0.1], r"must have 1 rows"),
        (["a"], [[0, 1]], [0.1], r"'levels_NK' must have 1 coordinates as the kept rows; got 2"),
    ],
)
def test_update_names_the_row_and_prompt_that_it_refuses(ids, levels, scores, message):
    """Missing scores, negative scores and states of another rubric are refused by name."""
    with pytest.raises(CalibrationError, match=message):
        update_drift(start_drift(calibration()), ids, iteration=1, levels_NK=levels, nonconformity_N=scores)


def test_log_ratio_belongs_to_the_pooled_scope():
    """A ratio that would not be used, or is missing where needed, or is not finite, is refused."""
    with pytest.raises(CalibrationError, match="exactly for the pooled scope; got scope 'state'"):
        step(start_drift(calibration()), 1, log_ratio=lambda levels: np.zeros(len(levels)))
    with pytest.raises(CalibrationError, match="exactly for the pooled scope; got scope 'pooled'"):
        step(start_drift(calibration(), scope="pooled"), 1)
    with pytest.raises(CalibrationError, match=r"'log_ratio' must be finite; got -inf \(state \(0,\)\)"):
        step(start_drift(calibration(), scope="pooled"), 1, log_ratio=lambda levels: np.full(len(levels), -np.inf))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"delta": 0.0}, r"got 0.0, 'state'"),
        ({"scope": "all"}, "got 0.05, 'all'"),
        ({"log_wealth_J": (0.0,)}, r"7 bets and finite numbers; got lengths \[12\], 1 bets"),
        ({"nonconformity_B": (0.1,)}, r"got lengths \[1, 12\]"),
        ({"log_ratio_B": (math.nan,) * 12}, "finite numbers"),
    ],
)
def test_damaged_state_is_refused(change, message):
    """A state that no run can have is not continued."""
    with pytest.raises(CalibrationError, match=message):
        replace(start_drift(calibration()), **change)
