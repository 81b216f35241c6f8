"""Unit tests of the weighted conformal regressor."""

import numpy as np
import pytest
from mapie.regression import SplitConformalRegressor
from sklearn.base import clone

from rangeline.conformal.intervals import reward_intervals, weighted_cutoffs
from rangeline.conformal.regressor import WeightedConformalRegressor
from rangeline.errors import CalibrationError

X = np.array([[0, 0], [0, 1], [1, 0], [1, 1]] * 10)
Y = np.clip(X.mean(axis=1) + np.random.default_rng(1).uniform(-0.2, 0.2, 40), 0, 1)
X_NEW, Y_NEW = X[::-1][:30], np.clip(X[::-1][:30].mean(axis=1) + np.linspace(-0.3, 0.3, 30), 0, 1)
TARGET = np.array([[1, 1]] * 15 + [[0, 1]] * 5)


def fitted(**settings):
    """Fit and calibrate an estimator."""
    return WeightedConformalRegressor(**settings).fit(X, Y).calibrate(X_NEW, Y_NEW)


@pytest.mark.parametrize("sigma", ["residual", "bernoulli", "plain"])
def test_interval_is_made_of_the_rooms_functions(sigma):
    """Scorer, ratio, cutoff and clipping are those of the pipeline."""
    model = WeightedConformalRegressor(sigma=sigma).fit(X, Y).calibrate(X_NEW, Y_NEW, target=TARGET)
    lower, upper = model.predict_interval(X[:4])
    cutoff = weighted_cutoffs(
        model.calibration_.nonconformity_C, model.ratio_.log_ratio(X_NEW), model.ratio_.log_ratio(X[:4]), 0.1
    )
    score = model.predict(X[:4])
    scale = {
        "residual": lambda: model.residual_.scale(X[:4]),
        "bernoulli": lambda: np.maximum(np.sqrt(score * (1 - score)), 0.05),
        "plain": lambda: np.ones(4),
    }[sigma]()
    expected = reward_intervals(score, scale, cutoff, prompt_id_N="0123", missing_N=[False] * 4)
    assert (expected.lower_N.tolist(), expected.upper_N.tolist()) == (lower.tolist(), upper.tolist())


def test_without_a_target_it_is_mapies_split_interval():
    """Equal weights and plain scores give the interval of MAPIE around the same scorer, clipped."""
    model = fitted(sigma="plain")
    peer = SplitConformalRegressor(model, confidence_level=0.9, prefit=True).conformalize(X_NEW, Y_NEW)
    _, expected = peer.predict_interval(X[:4])
    lower, upper = model.predict_interval(X[:4])
    assert np.clip(expected[:, 0, 0], 0, 1).tolist() == pytest.approx(lower.tolist(), abs=1e-12)
    assert np.clip(expected[:, 1, 0], 0, 1).tolist() == pytest.approx(upper.tolist(), abs=1e-12)


def test_parameters_are_never_changed():
    """Fitting, calibrating and bounding leave every parameter as given; a clone is an unfitted copy."""
    settings = {"alpha": 0.2, "sigma": "plain", "ratio": "counts", "group_by": 1, "num_levels": [2, 3]}
    model = WeightedConformalRegressor(**settings)
    before = model.get_params()
    model.fit(X, Y).calibrate(X_NEW, Y_NEW, target=TARGET).predict_interval(X)
    assert before == model.get_params()
    assert before == clone(model).get_params()
    with pytest.raises(CalibrationError, match="got no 'scorer_'"):
        clone(model).predict(X)


def test_learned_names_end_in_an_underscore():
    """Whatever is no parameter is learned, and says so by its name."""
    model = fitted()
    model.predict_interval(X)
    assert [] == [name for name in vars(model) if name not in model.get_params() and not name.endswith("_")]


@pytest.mark.parametrize("method", ["logistic", "counts", "forest", "boosting"])
def test_target_states_refit_the_ratio(method):
    """Each target has its own ratio and overlap report; without one all rows weigh alike."""
    model = WeightedConformalRegressor(ratio=method).fit(X, Y).calibrate(X_NEW, Y_NEW, target=TARGET)
    towards = model.ratio_.log_ratio([[1, 1]])[0]
    assert (20, method) == (model.overlap_.num_target, model.ratio_.method)
    model.calibrate(X_NEW, Y_NEW, target=1 - TARGET)
    assert model.ratio_.log_ratio([[1, 1]])[0] < towards
    model.calibrate(X_NEW, Y_NEW)
    assert (None, None) == (model.ratio_, model.overlap_)


def test_groups_by_column_have_their_own_cutoffs():
    """With a grouping column each level is bounded as if it were alone; a level never calibrated is unbounded."""
    model = WeightedConformalRegressor(sigma="plain", alpha=0.2, group_by=1, num_levels=(2, 3)).fit(X, Y)
    model.calibrate(X_NEW, Y_NEW)
    lower, upper = model.predict_interval([[0, 0], [0, 1], [0, 2]])
    assert [False, False, True] == model.unbounded_.tolist()
    assert (0.0, 1.0) == (lower[2], upper[2])
    alone = WeightedConformalRegressor(sigma="plain", alpha=0.2).fit(X, Y)
    for level in (0, 1):
        rows = X_NEW[:, 1] == level
        expected = alone.calibrate(X_NEW[rows], Y_NEW[rows]).predict_interval([[0, level]])
        assert (lower[level], upper[level]) == (expected[0][0], expected[1][0])


def test_groups_by_label_are_those_of_the_column():
    """Labels that name the column's levels give the intervals of that column."""
    by_column = fitted(group_by=0).predict_interval(X)
    model = WeightedConformalRegressor(group_by="labels").fit(X, Y)
    model.calibrate(X_NEW, Y_NEW, groups=[f"level {x}" for x in X_NEW[:, 0]])
    by_label = model.predict_interval(X, groups=[f"level {x}" for x in X[:, 0]])
    assert [column.tolist() for column in by_column] == [column.tolist() for column in by_label]


def test_no_calibration_row_means_unbounded():
    """Without calibration rows every interval is exactly [0, 1], and flagged."""
    model = WeightedConformalRegressor().fit(X, Y).calibrate(np.zeros((0, 2), dtype=int), [], target=TARGET)
    record = model.predict_record(X[:2])
    assert ([0.0] * 2, [1.0] * 2, [True] * 2) == (
        record.lower_N.tolist(),
        record.upper_N.tolist(),
        record.unbounded_N.tolist(),
    )
    assert model.overlap_ is None


def test_unseen_target_levels_are_handled_and_reported():
    """A level that only the target shows is weighed and counted, given that num_levels names it."""
    target = np.array([[1, 2]] * 10)
    model = WeightedConformalRegressor(num_levels=(2, 3)).fit(X, Y).calibrate(X_NEW, Y_NEW, target=target)
    report = model.overlap_
    assert (1.0, 1, True) == (report.unseen_target_share, report.num_unseen_levels, report.separable)
    with pytest.raises(CalibrationError, match=r"'levels_NK' must lie in \[-1, 1\]; got 2"):
        fitted().calibrate(X_NEW, Y_NEW, target=target)


def test_fitting_again_drops_the_calibration():
    """Scores of an older scorer never meet a newer one."""
    model = fitted()
    model.fit(X, Y)
    with pytest.raises(CalibrationError, match=r"got no 'calibration_' .* Call 'calibrate' first"):
        model.predict_interval(X)


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda m: m.calibrate(X, Y), "'calibrate' must come after what it uses; got no 'scorer_'"),
        (lambda m: m.predict(X), "'predict' must come after what it uses; got no 'scorer_'"),
        (lambda m: m.predict_interval(X), "'predict_interval' must come after .* Call 'fit' and 'calibrate' first"),
    ],
)
def test_use_before_fit_is_refused(use, message):
    """Each method says what must come first."""
    with pytest.raises(CalibrationError, match=message):
        use(WeightedConformalRegressor())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"alpha": 1.0}, r"'alpha' must lie in \(0, 1\); got 1.0"),
        ({"sigma": "wide"}, "'sigma' must be one of residual, bernoulli, plain; got wide"),
        ({"sigma_min": 0.0}, "'sigma_min' must be positive and finite; got 0.0"),
        ({"ratio": "trees"}, "'ratio' must be one of logistic, counts, forest, boosting; got trees"),
        ({"group_by": 2}, "'group_by' must be None, a column of X or 'labels'; got 2"),
        ({"group_by": "suite"}, "'group_by' must be None, a column of X or 'labels'; got suite"),
        ({"num_levels": (2, 200)}, r"'num_levels' must lie in \[1, 127\]; got \(2, 200\)"),
        ({"num_levels": (2,)}, "must be whole numbers with 1 columns"),
    ],
)
def test_bad_settings_are_refused_by_fit(settings, message):
    """Constructing checks nothing, as in scikit-learn; fitting names the parameter."""
    with pytest.raises(CalibrationError, match=message):
        WeightedConformalRegressor(**settings).fit(X, Y)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.fit([[0.5]], [0.0]), "'X' must be whole numbers with two axes; got float64"),
        (lambda m: m.fit([0], [0.0]), r"'X' must be whole numbers with two axes; got int64 of shape \(1,\)"),
        (lambda m: m.fit(X, np.append(Y[1:], np.nan)), r"'reward_S' must lie in \[0, 1\]; got nan \(row 39\)"),
        (lambda m: m.calibrate(X, np.append(Y[1:], np.nan)), r"'truth_C' must lie in \[0, 1\]; got nan \(row 39\)"),
        (lambda m: m.calibrate(X, Y, target=X[:0]), "'target_DK' must hold at least one state; got 0 rows"),
        (lambda m: m.calibrate(X, Y, groups=["a"] * 40), "'groups' must be given with group_by='labels' and only then"),
        (lambda m: m.set_params(group_by="labels").calibrate(X, Y), "'groups' must be given .* got none"),
        (
            lambda m: m.set_params(group_by="labels").calibrate(X, Y, groups="ab"),
            "'groups' must have one label for each",
        ),
    ],
)
def test_bad_rows_are_refused(call, message):
    """Rows, rewards, targets and labels that cannot be used are named."""
    with pytest.raises(CalibrationError, match=message):
        call(WeightedConformalRegressor().fit(X, Y))
