"""VeriFree's reward: the whole likelihood of the reference, or 0, or missing."""

import numpy as np
import pytest

from rangeline.rewards.verifree import verifree_intervals


def test_reward_is_the_product():
    """Probabilities .5 and .4 give .2; no reasoning gives 0; a reference that did not fit is missing."""
    made = verifree_intervals(
        ("p",) * 4,
        [np.log([0.5, 0.4]), None, None, np.log([0.9])],
        well_formed_N=np.array([True, False, True, True]),
        missing_N=np.array([False, False, False, True]),
    )
    assert [pytest.approx(0.2), 0.0] == made.center_N[:2].tolist()
    assert [False, False, True, True] == made.missing_N.tolist()
