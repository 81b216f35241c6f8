"""Laws of verified rewards."""

import numpy as np
import pytest

from rangeline.errors import BadInputError
from rangeline.rewards.verifiable import verifier_intervals


def test_verified_reward_is_a_point():
    """A verdict is an interval of zero width inside [0, 1]."""
    made = verifier_intervals(("p", "p", "q"), (1.0, 0.0, 0.5))
    assert made.center_N.tolist() == [1.0, 0.0, 0.5]
    assert made.half_width_N.tolist() == [0.0, 0.0, 0.0]
    assert (made.support, made.source) == ((0.0, 1.0), "verifier")


def test_no_verdict_is_missing_and_never_zero():
    """None is missing; a wrong answer is 0 and not missing."""
    made = verifier_intervals(("p", "p"), (None, 0.0))
    assert made.missing_N.tolist() == [True, False]
    assert np.isnan(made.lower_N[0])


def test_nothing_to_verify_is_empty():
    """No rollout gives no row."""
    assert len(verifier_intervals((), ())) == 0


@pytest.mark.parametrize(
    ("reward", "message"), [(float("nan"), "must be finite where not missing"), (1.5, "Interval must satisfy")]
)
def test_reward_outside_its_range_is_refused(reward, message):
    """A NaN is not a way to say missing, and 1.5 is no verdict."""
    with pytest.raises(BadInputError, match=message):
        verifier_intervals(("p",), (reward,))


def test_other_number_of_rewards_is_refused():
    """One reward a rollout."""
    with pytest.raises(BadInputError, match="'reward_N' must have one value a rollout; got 1 for 2"):
        verifier_intervals(("p", "q"), (1.0,))
