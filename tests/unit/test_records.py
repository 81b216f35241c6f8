"""Records: what their constructors refuse, copy, freeze and derive."""

import dataclasses

import numpy as np
import pytest

from rangeline.errors import BadInputError
from rangeline.records import Advantages, JudgmentTable, RewardIntervals, RolloutSet, SamplingPlan

NAN = float("nan")


def _rollouts(**over):
    values = {
        "prompt_id_N": ("p", "q"),
        "sample_N": (0, 0),
        "completion_N": ("a", "b"),
        "prompt_token_ids_N": ((1,), (2,)),
        "token_ids_N": ((3, 4), ()),
        "sampled_logprobs_N": ((-1.0, -2.0), ()),
        "finish_reason_N": ("stop", "length"),
        "policy_version": 0,
    }
    return RolloutSet(**(values | over))


def _judgments(**over):
    values = {
        "prompt_id_N": ("p", "q"),
        "levels_NK": [[0, 1], [-1, 2]],
        "missing_N": [False, True],
        "coordinates": ("correct", "clear"),
        "num_levels": (2, 3),
        "judge_digest": "d",
    }
    return JudgmentTable(**(values | over))


def _intervals(**over):
    values = {
        "prompt_id_N": ("p", "q"),
        "lower_N": [0.25, NAN],
        "upper_N": [0.75, NAN],
        "unbounded_N": [False, False],
        "missing_N": [False, True],
        "support": (0.0, 1.0),
        "source": "judge_interval",
    }
    return RewardIntervals(**(values | over))


def _advantages(**over):
    values = {"prompt_id_N": ("p", "q"), "value_N": [1.0, 0.0], "active_N": [True, False], "estimator": "range"}
    return Advantages(**(values | over))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"group_size": 0}, r"'group_size' must be positive; got 0"),
        ({"group_size": 1, "temperature": -0.5}, r"'temperature' must be positive; got -0\.5"),
        ({"group_size": 1, "temperature": NAN}, r"'temperature' must be positive; got nan"),
        ({"group_size": 1, "max_tokens": 0}, r"'max_tokens' must be positive; got 0"),
    ],
)
def test_plan_out_of_range_is_refused(settings, message):
    """A sampling plan has at least one rollout and one token, and no negative temperature."""
    with pytest.raises(BadInputError, match=message):
        SamplingPlan(**settings)


def test_greedy_plan_is_a_plan():
    """Temperature 0 means greedy and is allowed."""
    assert SamplingPlan(group_size=1, temperature=0).temperature == 0


@pytest.mark.parametrize("make", [_rollouts, _judgments, _intervals, _advantages])
def test_columns_of_another_length_are_refused(make):
    """All columns of a record have one length; the message gives each."""
    with pytest.raises(BadInputError, match=r"fields must have one length; got \{'prompt_id_N': 1,"):
        make(prompt_id_N=("p",))


@pytest.mark.parametrize("make", [_rollouts, _judgments, _intervals, _advantages])
def test_records_cannot_be_reassigned(make):
    """A record never changes after it is made."""
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign"):
        make().prompt_id_N = ()


@pytest.mark.parametrize(
    ("make", "name"),
    [(_judgments, "levels_NK"), (_intervals, "lower_N"), (_intervals, "upper_N"), (_advantages, "value_N")],
)
def test_arrays_are_copies_that_cannot_be_written(make, name):
    """Arrays are copied when the record is made, and are read-only."""
    given = np.array(getattr(make(), name))
    record = make(**{name: given})
    expected = given.copy()
    given[:] = 0
    np.testing.assert_array_equal(expected, getattr(record, name))
    with pytest.raises(ValueError, match="read-only"):
        getattr(record, name)[0] = 1


def test_every_token_has_a_logprob():
    """A rollout with more tokens than log-probabilities is refused with row and prompt."""
    with pytest.raises(BadInputError, match=r"one value a token; got 1 for 2 \(row 0, prompt 'p'\)"):
        _rollouts(sampled_logprobs_N=((-1.0,), ()))


def test_number_of_rollouts_is_their_length():
    """N is the length of a rollout set and of intervals."""
    assert (2, 2) == (len(_rollouts()), len(_intervals()))


@pytest.mark.parametrize("level", [-2, 2, 100])
def test_level_out_of_range_is_refused(level):
    """A level is UNKNOWN or below the number of levels; the message names coordinate, row and prompt."""
    with pytest.raises(BadInputError, match=rf"\[-1, 1\] for 'correct'; got {level} \(row 1, prompt 'q'\)"):
        _judgments(levels_NK=[[0, 1], [level, 2]])


@pytest.mark.parametrize("levels", [[[0], [1]], [[0, 1, 0], [0, 1, 0]], [0, 1]])
def test_judgments_have_a_column_a_coordinate(levels):
    """Levels have as many columns as there are coordinates."""
    with pytest.raises(BadInputError, match=r"'levels_NK' must have 2 columns"):
        _judgments(levels_NK=levels)


def test_coordinates_and_their_levels_agree():
    """Each coordinate has its number of levels."""
    with pytest.raises(BadInputError, match=r"one length; got \{'coordinates': 2, 'num_levels': 1\}"):
        _judgments(num_levels=(2,))


def test_unknown_share_leaves_missing_rows_out():
    """Missing rows count neither above nor below the line; with nothing asked, all is unknown."""
    assert 0.0 == _judgments().unknown_share
    assert 0.25 == _judgments(missing_N=[False, False]).unknown_share
    assert 1.0 == _judgments(missing_N=[True, True]).unknown_share


@pytest.mark.parametrize(
    ("over", "message"),
    [
        ({"lower_N": [0.8, NAN]}, r"0\.0 <= lower <= upper <= 1\.0; got \[0\.8, 0\.75\] \(row 0, prompt 'p'\)"),
        ({"lower_N": [-0.1, NAN]}, r"got \[-0\.1, 0\.75\]"),
        ({"upper_N": [1.1, NAN]}, r"got \[0\.25, 1\.1\]"),
        ({"lower_N": [NAN, NAN]}, r"'lower_N' must be finite where not missing; got nan \(row 0, prompt 'p'\)"),
        ({"support": None, "upper_N": [float("inf"), NAN]}, r"'upper_N' must be finite where not missing; got inf"),
    ],
)
def test_interval_must_be_an_interval_of_its_support(over, message):
    """Bounds are finite, in order and inside the support; the message names row and prompt."""
    with pytest.raises(BadInputError, match=message):
        _intervals(**over)


def test_missing_interval_is_never_a_number():
    """Where the reward is missing, bounds, center and half width are NaN, whatever was given."""
    record = _intervals(lower_N=[0.25, 0.0], upper_N=[0.75, 0.0])
    for values in (record.lower_N, record.upper_N, record.center_N, record.half_width_N):
        assert [False, True] == np.isnan(values).tolist()


def test_center_and_half_width_are_derived():
    """Center is (L + U) / 2, half width (U - L) / 2."""
    record = _intervals()
    assert (0.5, 0.25) == (record.center_N[0], record.half_width_N[0])


def test_scalar_reward_has_no_width():
    """An interval may have zero width, at the edge of its support too."""
    record = _intervals(lower_N=[1.0, NAN], upper_N=[1.0, NAN])
    assert (1.0, 0.0) == (record.center_N[0], record.half_width_N[0])


def test_scores_without_support_may_lie_anywhere():
    """Without a support only the order of the bounds is checked."""
    assert -5.0 == _intervals(support=None, lower_N=[-7.0, NAN], upper_N=[-3.0, NAN]).center_N[0]


@pytest.mark.parametrize("value", [NAN, float("inf")])
def test_advantage_is_finite(value):
    """No advantage is NaN or infinite, active or not."""
    with pytest.raises(BadInputError, match=r"'value_N' must be finite.*\(row 0, prompt 'p'\)"):
        _advantages(value_N=[value, 0.0])


def test_inactive_advantage_is_zero():
    """A rollout that takes no part has no advantage."""
    with pytest.raises(BadInputError, match=r"must be 0 where not active; got 0\.5 \(row 1, prompt 'q'\)"):
        _advantages(value_N=[1.0, 0.5])


def test_record_is_compared_by_identity():
    """Records that hold arrays compare by identity and can be hashed, so no comparison is ambiguous."""
    record = _advantages()
    assert (True, False) == (record == record, record == _advantages())
    assert {record} == {record}
