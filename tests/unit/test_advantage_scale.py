"""The factor that gives one estimator's advantages the size of the midpoint's."""

import json

import numpy as np
import pytest

from rangeline.advantage_scale import matching_factor, root_mean_square, scaled
from rangeline.config import build_config
from rangeline.errors import BadInputError
from rangeline.records import Advantages, RewardIntervals
from rangeline.stages.iteration import Iteration
from rangeline.stages.run import RunFolder
from rangeline.stages.tables import read_advantages, read_table, write_intervals
from rangeline.stages.workspace import Workspace

IDS = ("p", "p", "p", "q", "q", "q")
NARROW = ([0.1, 0.5, 0.8, 0.2, 0.4, 0.9], [0.2, 0.9, 0.9, 0.3, 1.0, 1.0])
WIDE = ([0.0, 0.1, 0.2, 0.0, 0.3, 0.1], [0.7, 0.9, 1.0, 0.8, 1.0, 0.9])


def test_matched_advantages_have_the_wanted_size():
    """After scaling, the root mean square is the wanted one, and no sign has changed."""
    value, wanted = np.array([0.1, -0.3, 0.2, 0.0]), np.array([0.5, -0.7, 0.2, 0.0])
    factor = matching_factor(value, wanted)
    assert root_mean_square(wanted) == pytest.approx(root_mean_square(value * factor), rel=1e-15)
    assert np.sign(value).tolist() == np.sign(value * factor).tolist()


def test_factor_does_not_depend_on_order_or_on_rows_without_credit():
    """Rows in another order, and rows where both are zero, leave the factor as it is."""
    value, wanted = np.array([0.1, -0.3, 0.2]), np.array([0.5, -0.7, 0.2])
    factor = matching_factor(value, wanted)
    assert factor == matching_factor(value[::-1], wanted[::-1])
    assert factor == pytest.approx(matching_factor([*value, 0, 0], [*wanted, 0, 0]), rel=1e-15)


@pytest.mark.parametrize(("value", "wanted"), [([0.0, 0.0], [1.0, -1.0]), ([1.0, -1.0], [0.0, 0.0])])
def test_nothing_matches_a_batch_without_signal(value, wanted):
    """Where either side is all zero there is no factor, and advantages stay as they are."""
    advantages = Advantages(prompt_id_N=("p", "p"), value_N=value, active_N=[True, True], estimator="range")
    assert matching_factor(value, wanted) is None
    assert value == scaled(advantages, None).value_N.tolist()


def test_lengths_must_agree():
    """Advantages of other rollouts cannot be matched."""
    with pytest.raises(BadInputError, match="'wanted_N' must have one value a rollout"):
        matching_factor([1.0], [1.0, 2.0])


def _credit(tmp_path, kind, bounds, number):
    config = build_config(
        {"advantages": {"estimator": "range", "reference_width": 0.25, "advantage_scale": kind}}, source="test"
    )
    iteration = Iteration(Workspace(tmp_path), config, RunFolder(tmp_path / kind), number)
    intervals = RewardIntervals(
        prompt_id_N=IDS,
        lower_N=bounds[0],
        upper_N=bounds[1],
        unbounded_N=[False] * 6,
        missing_N=[False] * 6,
        support=(0.0, 1.0),
        source="judge_interval",
    )
    write_intervals(iteration.folder / "policy_intervals.parquet", intervals)
    assert iteration.credit()
    facts = json.loads((iteration.folder / "credit.json").read_text())
    midpoint = read_table(iteration.folder / "advantages.parquet")["midpoint"].to_numpy()
    return read_advantages(iteration.folder / "advantages.parquet").value_N, midpoint, facts


def test_match_batch_matches_every_batch(tmp_path):
    """Each batch gets a factor of its own, so that its size is the midpoint's."""
    for number, bounds in ((1, NARROW), (2, WIDE)):
        value, midpoint, facts = _credit(tmp_path, "match_batch", bounds, number)
        assert root_mean_square(midpoint) == pytest.approx(root_mean_square(value), rel=1e-12)
        assert facts["advantage/rms"] == pytest.approx(facts["advantage/midpoint_rms"], rel=1e-12)


def test_match_initial_keeps_the_factor_of_the_first_batch(tmp_path):
    """The first batch sets the factor; later ones are as much smaller as the estimator makes them."""
    plain = [_credit(tmp_path, "none", bounds, number) for number, bounds in ((1, NARROW), (2, WIDE))]
    kept = [_credit(tmp_path, "match_initial", bounds, number) for number, bounds in ((1, NARROW), (2, WIDE))]
    factor = kept[0][2]["advantage/scale"]
    assert factor == kept[1][2]["advantage/scale"]
    assert (plain[1][0] * factor).tolist() == kept[1][0].tolist()
    assert root_mean_square(kept[0][1]) == pytest.approx(root_mean_square(kept[0][0]), rel=1e-12)
    assert kept[1][2]["advantage/rms"] < kept[1][2]["advantage/midpoint_rms"]


def test_none_changes_no_bit(tmp_path):
    """Without a scale there is no factor."""
    assert _credit(tmp_path, "none", NARROW, 1)[2]["advantage/scale"] is None
