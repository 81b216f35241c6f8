"""Anchor sets are complete when made, or not made."""

import numpy as np
import pytest

from rangeline.errors import AnchorError
from rangeline.rewards.anchor_set import AnchorSet


def _set(ids=("p", "q"), *, count=2, queries=3, hidden=2, **over):
    rng = np.random.default_rng(0)
    arrays = {
        "positive_PKH": rng.normal(size=(len(ids), count, hidden)),
        "negative_PKH": rng.normal(size=(len(ids), count, hidden)),
        "query_PMH": rng.normal(size=(len(ids), queries, hidden)),
    }
    return AnchorSet(prompt_id_P=tuple(ids), **(arrays | over))


@pytest.mark.parametrize(
    ("over", "message"),
    [
        ({"count": 1}, "'K' must be at least 2 anchors a side; got 1"),
        ({"ids": ("p", "p")}, "'prompt_id_P' must be distinct; got 'p' twice"),
        ({"queries": 0}, r"'query_PMH' must have shape \(prompts, rows, hidden\)"),
        ({"positive_PKH": np.ones((2, 3, 2))}, "must fit each other"),
        ({"query_PMH": np.ones((2, 3, 4))}, "must fit each other"),
        ({"negative_PKH": np.ones((2, 2))}, "'negative_PKH' must have shape"),
        ({"positive_PKH": np.array([[[1, 2], [3, 4]], [[1, np.nan], [3, 4]]])}, r"got nan \(prompt 'q', row 0\)"),
        ({"query_PMH": np.full((2, 3, 2), np.inf)}, "'query_PMH' must be finite; got inf"),
    ],
)
def test_unusable_anchors_are_refused(over, message):
    """One anchor, repeated prompts, odd shapes and numbers that are none are refused by name."""
    with pytest.raises(AnchorError, match=message):
        _set(**over)


def test_equal_sides_are_seen_in_any_order():
    """The same rows on both sides are equal sides, whatever their order; one other row is not."""
    rows = np.array([[[1.0, 2.0], [3.0, 4.0]], [[1.0, 2.0], [1.0, 2.0]]])
    other = np.array([[[3.0, 4.0], [1.0, 2.0]], [[1.0, 2.0], [1.0, 3.0]]])
    assert [True, False] == _set(positive_PKH=rows, negative_PKH=other).equal_P.tolist()


def test_selected_prompts_keep_their_rows():
    """A selection holds the rows of its prompts."""
    whole = _set(("p", "q", "r"))
    part = whole.select([2, 0])
    assert ("r", "p") == part.prompt_id_P
    np.testing.assert_array_equal(whole.query_PMH[[2, 0]], part.query_PMH)


def test_arrays_do_not_change_with_their_source():
    """The record holds copies that cannot be written."""
    rows = np.ones((2, 2, 2), dtype=np.float32)
    made = _set(positive_PKH=rows)
    rows[:] = 5
    assert 1.0 == made.positive_PKH.max()
    assert not made.positive_PKH.flags.writeable
