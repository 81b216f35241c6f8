"""Summary of a comparison: what each method reached on each design, and by how much the reference differs from it.

Computes, over the seeds of a design, means with standard errors and paired differences of what runs recorded. A run's
coverage is the share of its rollouts that were covered, over all its iterations; its accuracy is that of its last look.
Seeds are the units of everything. Before anything is summed, the runs of a seed must be proven alike: the same
rollouts at their first iteration, the same number of rollouts of every kind, the same held-out prompts.

Shapes: S seeds, W windows between two looks.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from rangeline.errors import BadInputError
from rangeline.evaluation.comparison_statistics import (
    FlipCount,
    SeedDifference,
    SeedMean,
    difference_over_seeds,
    mean_over_seeds,
)
from rangeline.evaluation.sampling_metrics import clustered_interval

Run = Mapping[str, Any]
"""One run's `result.json`."""

_SCALAR = frozenset({"grpo", "dr_grpo", "rloo"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One number along a run: mean over seeds and standard error, at the iterations of the looks."""

    iterations: tuple[int, ...]
    points: tuple[SeedMean, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodSummary:
    """What one method did on one design."""

    method: str
    is_scalar: bool
    """True for a reduction of the judge's intervals to points."""
    learning_rate: float
    seeds: tuple[int, ...]
    accuracy: SeedMean
    """Of the last look."""
    reward: SeedMean
    difference: SeedDifference | None
    """Reference minus this method in accuracy; None for the reference, and where no seed is shared."""
    coverage: SeedMean
    coverage_band: tuple[float | None, float | None]
    """Of the mean, by resampling seeds, which hold their prompts and rollouts together; None with one seed."""
    width: SeedMean
    unbounded: SeedMean
    ess: SeedMean
    rms: SeedMean
    """Root mean square of the advantages as trained on, mean over the run."""
    midpoint_rms: SeedMean
    flips: FlipCount
    flips_right: SeedMean
    """Of turned signs that met a truth, the share that it agrees with; mean over the seeds that have any."""
    rollouts: Mapping[str, int]
    """Rollouts of a run by kind."""
    before: Mapping[str, int]
    """Rollouts that were made before the run, once for a seed, by what they are for; empty for none."""
    accuracy_curve: Curve
    coverage_curve: Curve
    """Over the iterations since the look before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DesignSummary:
    """All methods on one design."""

    design: str
    reference: str
    target: float
    """Coverage that the intervals promise."""
    is_oracle: bool
    """True where coverage is that of the unlabelled policy rollouts; else of the labelled audit share."""
    num_held_out: int
    compares_sources: bool
    """True where methods differ in their reward source, so that not every first rollout and budget is equal."""
    methods: tuple[MethodSummary, ...]
    missing: tuple[str, ...]
    """Runs that have no result."""
    absent: Mapping[str, str]
    """Reason of each method that has no result at all, by its name."""

    @property
    def best_scalar(self) -> MethodSummary | None:
        """Return the scalar reduction, other than the reference, that the reference exceeds least; None without one.

        By the paired difference: a method that failed on hard seeds is held against the reference on its own seeds, so
        that its mean over the easy ones does not count for it. Where no run failed this is the highest accuracy.
        """
        known = [(item.difference.mean, item) for item in self.methods if item.is_scalar and item.difference]
        return min(known, key=lambda pair: pair[0], default=(0.0, None))[1]


def require_paired(runs: Sequence[Run]) -> None:
    """Prove that the methods of each seed are comparable.

    Raises
    ------
    BadInputError
        Two runs of a design and seed differ in their first rollouts, their budgets or their held-out prompts, or one
        looked at validation prompts.

    Notes
    -----
    Where reward sources are compared, a source settles which prompts are drawn and how often: first rollouts must be
    equal where the `pairing` is, and numbers of rollouts are told, not required.
    """
    is_mixed = compares_sources(runs)
    facts: dict[str, tuple[Callable[[Run], Any], str | None]] = {
        "first rollouts": (lambda run: run["rows"][1]["rollouts_sha256"], "pairing"),
        "held-out prompts": (lambda run: run["held_out_sha256"], None),
    }
    if not is_mixed:
        facts["rollouts by kind"] = (_budget, None)
    first: dict[tuple[Any, ...], Run] = {}
    for run in runs:
        if run["role"] != "test":
            msg = f"Run '{run['method']}' must be a reported one; got role {run['role']} (seed {run['seed']})."
            raise BadInputError(msg)
        for name, (fact, among) in facts.items():
            alike = run.get(among) if is_mixed and among else None
            other = first.setdefault((name, run["design"], run["seed"], alike), run)
            if fact(run) != fact(other):
                msg = (
                    f"Methods must have equal {name} to be paired; got {fact(other)!s:.60} for '{other['method']}' and "
                    f"{fact(run)!s:.60} for '{run['method']}' ({run['design']}, seed {run['seed']}). Run both again."
                )
                raise BadInputError(msg)


def compares_sources(runs: Sequence[Run]) -> bool:
    """Return whether runs took their rewards from different sources, or from one that asks no judge."""
    return len({run.get("source") for run in runs}) > 1 or not all(run.get("asks_judge", True) for run in runs)


def _iterations(run: Run) -> list[Mapping[str, Any]]:
    return [row for row in run["rows"] if row["iteration"] > 0]


def _budget(run: Run) -> dict[str, int]:
    """Return the rollouts of a run by kind, auxiliary ones included."""
    total: dict[str, int] = {}
    for row in _iterations(run):
        for kind, count in row["rollouts"].items():
            total[kind] = total.get(kind, 0) + count
    return total


def summarise_design(
    runs: Sequence[Run],
    *,
    reference: str,
    methods: Sequence[str],
    missing: Sequence[str],
    confidence: float,
    failures: Mapping[str, str] | None = None,
) -> DesignSummary:
    """Summarise all runs of one design.

    Parameters
    ----------
    runs
        Results, one a method and seed.
    reference
        The method that others are subtracted from.
    methods
        Their order in tables; those without a result are left out.
    missing
        What has no result, in words.
    confidence
        Of intervals, in (0, 1).
    failures
        Reason of each run that failed, by `design, method, seed n`; None for no failure.

    Raises
    ------
    BadInputError
        There is no run, or the runs are not paired.
    """
    if not runs:
        msg = f"A design must have a finished run to be summarised; got none. Failed: {'; '.join(missing) or 'none'}."
        raise BadInputError(msg)
    require_paired(runs)
    measured = [run for run in runs if _knows(run, "audit") or _knows(run, "policy")]
    share = "policy" if measured and all(_knows(run, "policy") for run in measured) else "audit"
    by_method = {name: [run for run in runs if run["method"] == name] for name in methods}
    accuracy = {name: {run["seed"]: run["rows"][-1]["accuracy"] for run in own} for name, own in by_method.items()}
    summaries = []
    for name, own in by_method.items():
        if own:
            shared = name != reference and accuracy[reference].keys() & accuracy[name].keys()
            change = (
                difference_over_seeds(accuracy[reference], accuracy[name], confidence=confidence) if shared else None
            )
            summaries.append(_summarise(own, share, change, confidence))
    return DesignSummary(
        design=runs[0]["design"],
        reference=reference,
        target=runs[0]["target"],
        is_oracle=share == "policy",
        num_held_out=runs[0]["num_held_out"],
        compares_sources=compares_sources(runs),
        methods=tuple(summaries),
        missing=tuple(missing),
        absent={name: _reason(name, failures or {}) for name, own in by_method.items() if not own},
    )


def _reason(method: str, failures: Mapping[str, str]) -> str:
    """Return why a method has no result: what the first of its runs failed with."""
    return next((why for label, why in failures.items() if f", {method}, seed " in label), "it was not run")


def _knows(run: Run, share: str) -> bool:
    return any(row[share]["num_judged"] for row in _iterations(run))


def _summarise(runs: Sequence[Run], share: str, difference: SeedDifference | None, confidence: float) -> MethodSummary:
    coverages = [_coverage(_iterations(run), share) for run in runs]
    known = np.array([value for value in coverages if value is not None], dtype=np.float64)
    first, rates = runs[0], sorted({run["learning_rate"] for run in runs})
    if len(rates) > 1:
        msg = f"A method must keep its learning rate over seeds; got {rates} ('{first['method']}')."
        raise BadInputError(msg)
    return MethodSummary(
        method=first["method"],
        is_scalar=first["rewards"] == "judge" and first["estimator"] in _SCALAR,
        learning_rate=rates[0],
        seeds=tuple(sorted(run["seed"] for run in runs)),
        accuracy=mean_over_seeds([run["rows"][-1]["accuracy"] for run in runs]),
        reward=mean_over_seeds([run["rows"][-1]["reward"] for run in runs]),
        difference=difference,
        coverage=mean_over_seeds(coverages),
        coverage_band=(
            clustered_interval(known, confidence=confidence, seed=0, support=(0.0, 1.0))
            if known.size > 1
            else (None, None)
        ),
        width=_mean(runs, lambda row: row[share]["mean_width"]),
        unbounded=_mean(runs, lambda row: row[share]["unbounded_share"]),
        ess=_mean(runs, lambda row: row["ess_share"]),
        rms=_mean(runs, lambda row: row["rms"]),
        midpoint_rms=_mean(runs, lambda row: row["midpoint_rms"]),
        flips=_flips(runs),
        flips_right=mean_over_seeds([_flips([run]).right_share for run in runs]),
        rollouts=_budget(first),
        before=first.get("before", {}),
        accuracy_curve=_accuracy_curve(runs),
        coverage_curve=_coverage_curve(runs, share),
    )


def _mean(runs: Sequence[Run], read: Any) -> SeedMean:
    """Return the mean over seeds of each run's mean over iterations; iterations without a value are left out."""
    return mean_over_seeds([mean_over_seeds([read(row) for row in _iterations(run)]).mean for run in runs])


def _coverage(rows: Sequence[Mapping[str, Any]], share: str) -> float | None:
    judged = sum(row[share]["num_judged"] or 0 for row in rows)
    return sum(row[share]["num_covered"] or 0 for row in rows) / judged if judged else None


def _flips(runs: Sequence[Run]) -> FlipCount:
    counts = [FlipCount(**row["flips"]) for run in runs for row in _iterations(run)]
    return sum(counts[1:], start=counts[0])


def _look_iterations(run: Run) -> list[int]:
    return [row["iteration"] for row in run["rows"] if "accuracy" in row]


def _accuracy_curve(runs: Sequence[Run]) -> Curve:
    looks = _look_iterations(runs[0])
    at = [{row["iteration"]: row.get("accuracy") for row in run["rows"]} for run in runs]
    return Curve(
        iterations=tuple(looks), points=tuple(mean_over_seeds([rows.get(number) for rows in at]) for number in looks)
    )


def _coverage_curve(runs: Sequence[Run], share: str) -> Curve:
    looks = _look_iterations(runs[0])
    windows = list(pairwise(looks))
    points = [
        mean_over_seeds(
            [_coverage([row for row in _iterations(run) if low < row["iteration"] <= high], share) for run in runs]
        )
        for low, high in windows
    ]
    return Curve(iterations=tuple(high for _, high in windows), points=tuple(points))
