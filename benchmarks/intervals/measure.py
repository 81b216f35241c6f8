"""One contender on one size: seconds, peak memory and cutoffs; runs alone in its own process, on one core.

Imports nothing of Rangeline except for Rangeline's own contender, so that a peer's environment can run it.

Shapes: C calibration rows, N test points.
"""

import importlib
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

Arrays = dict[str, Any]
Contender = Callable[[Arrays, float], Any]


def rangeline(data: Arrays, alpha: float) -> Any:
    """Return all cutoffs in one call of `weighted_cutoffs`."""
    intervals = importlib.import_module("rangeline.conformal.intervals")
    return intervals.weighted_cutoffs(data["score_C"], data["log_weight_C"], data["log_weight_N"], alpha)


def loop(data: Arrays, alpha: float) -> Any:
    """Return the textbook's cutoffs: per test point, normalise all weights, add them up, take the quantile."""
    order = np.argsort(data["score_C"])
    score_C, weight_C = data["score_C"][order], np.exp(data["log_weight_C"])[order]
    cutoff_N = np.empty(len(data["log_weight_N"]))
    for i, weight in enumerate(np.exp(data["log_weight_N"])):
        mass_C = np.cumsum(weight_C / (weight_C.sum() + weight))
        rank = int(np.searchsorted(mass_C, 1 - alpha))
        cutoff_N[i] = score_C[rank] if rank < len(score_C) else np.inf
    return cutoff_N


def crepes_weighted(data: Arrays, alpha: float) -> Any:
    """Return half the widths of crepes-weighted's conformal regressor with likelihood ratios."""
    regressor = importlib.import_module("crepes_weighted").ConformalRegressor()
    regressor.fit(data["score_C"], likelihood_ratios=np.exp(data["log_weight_C"]))
    centre_N = np.zeros(len(data["log_weight_N"]))
    bounds = regressor.predict(centre_N, confidence=1 - alpha, likelihood_ratios=np.exp(data["log_weight_N"]))
    return bounds[:, 1]


def puncc_each(data: Arrays, alpha: float) -> Any:
    """Return puncc's weighted quantile, asked anew for each test point with that point's own mass."""
    calibrator = importlib.import_module("deel.puncc.api.calibration").BaseCalibrator(
        nonconf_score_func=lambda _, truth: truth, pred_set_func=lambda centre, scores_quantile: centre
    )
    calibrator.fit(y_true=data["score_C"], y_pred=np.zeros(len(data["score_C"])))
    weight_C = np.exp(data["log_weight_C"])
    cutoff_N = np.empty(len(data["log_weight_N"]))
    for i, weight in enumerate(np.exp(data["log_weight_N"])):
        mass = np.append(weight_C, weight)
        cutoff_N[i] = calibrator.compute_quantile(alpha=alpha, weights=mass / mass.sum())
    return cutoff_N


def _zero(features: Any) -> Any:
    return np.zeros(len(features))


def puncc_constant(data: Arrays, alpha: float) -> Any:
    """Return half the widths of puncc's SplitCP with a weight function: test mass 1 whatever the point."""
    regression = importlib.import_module("deel.puncc.regression")
    prediction = importlib.import_module("deel.puncc.api.prediction")

    class _Zero:
        def predict(self, features: Any) -> Any:
            return _zero(features)

    model = prediction.BasePredictor(_Zero(), is_trained=True)
    split = regression.SplitCP(model, train=False, weight_func=lambda features: np.exp(features[:, 0]))
    split.fit(X_calib=data["log_weight_C"][:, None], y_calib=data["score_C"])
    return split.predict(data["log_weight_N"][:, None], alpha=alpha)[2]


def mapie_unweighted(data: Arrays, alpha: float) -> Any:
    """Return half the widths of MAPIE's split conformal regressor, which has no weights."""
    dummy = importlib.import_module("sklearn.dummy").DummyRegressor(strategy="constant", constant=0.0)
    model = dummy.fit(np.zeros((1, 1)), np.zeros(1))
    peer = importlib.import_module("mapie.regression").SplitConformalRegressor(
        model, confidence_level=1 - alpha, prefit=True
    )
    peer.conformalize(data["log_weight_C"][:, None], data["score_C"])
    return peer.predict_interval(data["log_weight_N"][:, None])[1].reshape(-1, 2)[:, 1]


CONTENDERS: dict[str, tuple[Contender, str | None, str]] = {
    "rangeline": (rangeline, None, "each test point's own"),
    "loop": (loop, None, "each test point's own"),
    "crepes-weighted": (crepes_weighted, "crepes-weighted", "each test point's own"),
    "puncc, asked for each point": (puncc_each, "puncc", "each test point's own"),
    "puncc SplitCP(weight_func)": (puncc_constant, "puncc", "1 for every test point"),
    "MAPIE": (mapie_unweighted, "mapie", "no weights"),
}
"""Name: what to call, the distribution that it needs, and which mass a test point has."""


def _peak_bytes() -> int:
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def main(arguments: list[str]) -> None:
    """Measure: name, data file, alpha, repeats, file of the cutoffs; write one JSON line."""
    name, source, alpha, repeats, target = arguments
    call, package, _ = CONTENDERS[name]
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    with np.load(source) as stored:
        data = {key: stored[key] for key in stored.files}
    small = {key: values[:64] for key, values in data.items()}
    call(small, 0.5)  # imports, and whatever a first call costs
    before, seconds, cutoff_N = _peak_bytes(), [], None
    for _ in range(int(repeats)):
        start = time.perf_counter()
        cutoff_N = call(data, float(alpha))
        seconds.append(time.perf_counter() - start)
    growth = _peak_bytes() - before
    np.save(Path(target), np.asarray(cutoff_N))
    version = metadata.version(package) if package else ""
    report = {"seconds": seconds, "peak_growth_bytes": growth, "version": version, "numpy": np.__version__}
    sys.stdout.write(json.dumps(report) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
