"""Calibration: source rows alone decide scorer and scale, and rows without a truth take no part."""

import numpy as np
import pytest

from rangeline.config import build_config
from rangeline.errors import CalibrationError
from rangeline.records import JudgmentTable
from rangeline.stages.calibration import fit_calibration, load_calibration, read_truth
from rangeline.stages.tables import write_table
from rangeline.stages.workspace import Workspace

NAN = float("nan")
SETTINGS = build_config({"calibrate": {"trees": 5, "depth": 2}}, source="test").calibrate
STATES = [[0, 0], [0, 1], [1, 0], [1, 1], [-1, 1], [1, -1]]
SOURCE_TRUTH = [0.0, 0.0, 1.0, 1.0, 0.0, 1.0]
CALIBRATION_TRUTH = [0.0, 1.0, 1.0, 0.0, 1.0, 0.0]


def _table(levels=STATES, missing=None, name="c"):
    return JudgmentTable(
        prompt_id_N=tuple(f"{name}{i}" for i in range(len(levels))),
        levels_NK=levels,
        missing_N=missing or [False] * len(levels),
        coordinates=("correct", "clear"),
        num_levels=(2, 2),
        judge_digest="d",
    )


def _fit(*, source=None, calibration=None, settings=SETTINGS):
    return fit_calibration(
        source or (_table(name="s"), np.array(SOURCE_TRUTH)),
        calibration or (_table(), np.array(CALIBRATION_TRUTH)),
        settings,
        0,
    )


def test_calibration_truths_decide_neither_scorer_nor_scale():
    """Changing the truths of the calibration pool changes its scores' errors and nothing that was fitted."""
    one, other = _fit(), _fit(calibration=(_table(), 1 - np.array(CALIBRATION_TRUTH)))
    assert one.scorer.to_bytes() == other.scorer.to_bytes()
    assert one.residual.to_json() == other.residual.to_json()
    np.testing.assert_array_equal(one.calibration.scale_C, other.calibration.scale_C)
    np.testing.assert_array_equal(one.calibration.score_C, other.calibration.score_C)
    assert (one.calibration.nonconformity_C != other.calibration.nonconformity_C).any()


def test_calibration_states_decide_neither_scorer_nor_scale():
    """Other calibration rows leave scorer and scale as they are."""
    one, other = _fit(), _fit(calibration=(_table(STATES[:2]), np.array([1.0, 0.0])))
    assert (one.scorer.digest, one.residual.to_json()) == (other.scorer.digest, other.residual.to_json())


def test_source_truths_decide_the_scorer():
    """Changing the truths of the source pool changes the scorer."""
    assert _fit().scorer.digest != _fit(source=(_table(), 1 - np.array(SOURCE_TRUTH))).scorer.digest


def test_missing_truth_is_left_out():
    """A calibration row without a truth is no row: not a truth of 0."""
    truth = np.array([NAN, *CALIBRATION_TRUTH[1:]])
    actual = _fit(calibration=(_table(), truth)).calibration
    assert ("c1", "c2", "c3", "c4", "c5") == actual.prompt_id_C
    np.testing.assert_array_equal(CALIBRATION_TRUTH[1:], actual.truth_C)


def test_missing_judgment_is_left_out():
    """A calibration row without a state is no row, whatever its truth."""
    missing = [False, True, False, False, False, False]
    assert "c1" not in _fit(calibration=(_table(missing=missing), np.array(CALIBRATION_TRUTH))).calibration.prompt_id_C


@pytest.mark.parametrize("row", [0, 3])
def test_missing_source_row_is_as_if_it_were_not_there(row):
    """A source row without truth, or without state, gives the scorer and scale of the rows without it."""
    keep = [i for i in range(len(STATES)) if i != row]
    expected = _fit(source=(_table([STATES[i] for i in keep]), np.array([SOURCE_TRUTH[i] for i in keep])))
    truth = np.array(SOURCE_TRUTH)
    truth[row] = NAN
    no_truth = _fit(source=(_table(), truth))
    missing = [i == row for i in range(len(STATES))]
    no_state = _fit(source=(_table(missing=missing), np.array(SOURCE_TRUTH)))
    for actual in (no_truth, no_state):
        assert expected.scorer.digest == actual.scorer.digest
        assert expected.residual.to_json() == actual.residual.to_json()


def test_nonconformity_is_the_scaled_error():
    """Each calibration row's score is |s - truth| / sigma, with the frozen scorer and scale."""
    result = _fit()
    rows = result.calibration
    np.testing.assert_array_equal(np.abs(rows.score_C - rows.truth_C) / rows.scale_C, rows.nonconformity_C)
    np.testing.assert_array_equal(result.scorer.score(STATES), rows.score_C)
    np.testing.assert_array_equal(result.residual.scale(STATES), rows.scale_C)


def test_bernoulli_scale_is_of_the_score():
    """With the bernoulli scale sigma is sqrt(s (1 - s)) with its floor."""
    settings = SETTINGS.model_copy(update={"sigma": "bernoulli", "sigma_min": 0.3})
    rows = _fit(settings=settings).calibration
    expected = np.maximum(np.sqrt(rows.score_C * (1 - rows.score_C)), 0.3)
    np.testing.assert_array_equal(expected, rows.scale_C)


def test_source_states_are_kept_for_the_ratio():
    """All source states are kept, those without a truth too: the density ratio needs no labels."""
    truth = np.array([NAN, *SOURCE_TRUTH[1:]])
    assert 6 == len(_fit(source=(_table(), truth)).source.prompt_id_N)


def test_fit_is_the_same_every_time():
    """Equal rows and settings give equal bytes."""
    assert _fit().scorer.to_bytes() == _fit().scorer.to_bytes()


@pytest.mark.parametrize("pool", ["source", "calibration"])
@pytest.mark.parametrize("case", ["no rows", "no truth", "no state"])
def test_pool_without_a_usable_row_is_named(pool, case):
    """A pool in which no row has both state and truth cannot calibrate; the message names it."""
    empty = {
        "no rows": lambda: (_table(np.zeros((0, 2))), np.zeros(0)),
        "no truth": lambda: (_table(), np.full(6, NAN)),
        "no state": lambda: (_table(missing=[True] * 6), np.zeros(6)),
    }[case]()
    with pytest.raises(CalibrationError, match=rf"Pool '{pool}' must have rows with a state and a truth; got none of"):
        _fit(**{pool: empty})


def test_missing_truth_of_a_file_is_nan(tmp_path):
    """A null truth reads as NaN, and 0 as 0."""
    write_table(tmp_path / "t.parquet", {"truth": [1.0, None, 0.0]})
    np.testing.assert_array_equal([1.0, NAN, 0.0], read_truth(tmp_path / "t.parquet"))


def test_training_before_calibration_is_refused(tmp_path):
    """Without calibration the message says which command makes it."""
    with pytest.raises(CalibrationError, match=r"Calibration must exist before training; .*Run 'rangeline calibrate'"):
        load_calibration(Workspace(tmp_path), build_config({}, source="test"))


def test_ratio_starts_from_the_rows_that_calibration_can_use():
    """A source row without a truth is left out of the ratio's source, as it is of the calibration set's kind."""
    truth = np.array(SOURCE_TRUTH)
    truth[[1, 4]] = NAN
    assert [False, True, False, False, True, False] == _fit(source=(_table(), truth)).source.missing_N.tolist()
