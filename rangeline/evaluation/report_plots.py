"""Which charts a run report has, and how to read each of them."""

import math

from rangeline.evaluation.report_charts import (
    Bar,
    CalibrationPoint,
    Chart,
    LinePlot,
    bar_chart,
    calibration_chart,
    line_chart,
)
from rangeline.evaluation.report_svg import Values
from rangeline.evaluation.report_text import share_text
from rangeline.evaluation.run_summary import METRICS, RunSummary

Named = tuple[str, str, tuple[tuple[str, str], ...], str]
"""Title, axis label, names and metrics of lines, note."""

_PLOTS: dict[str, Named] = {
    "coverage": (
        "Coverage of the truth by iteration",
        "rollouts covered (%)",
        (("coverage", "coverage/empirical"), ("policy rollouts (oracle)", "oracle/coverage")),
        "Share of labelled held-out rollouts whose truth lies inside its interval. The shaded band is that of one "
        "iteration, by prompt; the thin pair bounds the coverage of the run so far, and may be read at every look. "
        "Coverage stands where they hold the target. Marks: ✗ under coverage, ▲ over coverage, ? too little evidence.",
    ),
    "width": (
        "Width of reward intervals",
        "reward units, or share (0 to 1)",
        (("mean width", "interval/mean_width"), ("unbounded share", "interval/unbounded_share")),
        "A width of 1 is the whole reward scale. An unbounded interval says nothing on its rollout.",
    ),
    "overlap": (
        "Overlap of calibration and policy states",
        "share, or AUC (0 to 1)",
        (
            ("ESS share", "ratio/ess_share"),
            ("classifier AUC", "ratio/classifier_auc"),
            ("clipped weights", "ratio/clipped_share"),
            ("unseen states", "ratio/unseen_target_share"),
        ),
        "A high ESS share and an AUC near 0.5 mean that calibration still speaks for the policy.",
    ),
    "audit": (
        "Accuracy on the audit share",
        "rollouts, or reward (%)",
        (
            ("accuracy (truth)", "train/accuracy"),
            ("mean interval center", "reward/mean_center"),
            ("held-out accuracy", "evaluation/accuracy"),
        ),
        "Truth against what the intervals believe: centers that rise while accuracy does not are a warning.",
    ),
    "rewards": (
        "Rewards and the size of advantages",
        "reward units",
        (
            ("spread of rewards", "reward/std"),
            ("RMS advantage", "advantage/rms"),
            ("RMS by midpoint", "advantage/midpoint_rms"),
        ),
        "Below the midpoint's RMS, the intervals hold back credit that their widths do not bear out.",
    ),
    "flips": (
        "Signs turned against the midpoint",
        "rollouts (number)",
        (
            ("turned", "advantage/sign_flips"),
            ("towards the truth", "oracle/flips_right"),
            ("away from it", "oracle/flips_wrong"),
        ),
        "Rollouts whose advantage has another sign than the middle of the interval alone would give; where an oracle "
        "knows the truth of policy rollouts, whether it agrees with the new sign. Each counts once, however small its "
        "credit.",
    ),
    "audit_flips": (
        "The same on audited rollouts, whose truth is known",
        "rollouts (number)",
        (
            ("turned", "audit/flips"),
            ("towards the truth", "audit/flips_right"),
            ("away from it", "audit/flips_wrong"),
        ),
        "Audited rollouts train nothing; here they get the credit that the iteration's estimator would give them. "
        "Turns where the true reward equals its group's mean are in neither count.",
    ),
    "weights": (
        "Pair weights and active rollouts",
        "weight, or share (0 to 1)",
        (("median pair weight", "advantage/median_pair_weight"), ("active share", "advantage/active_share")),
        "A weight of 1 is a pair of exact rewards. Inactive rollouts have no reward, or no group to compare with.",
    ),
    "entropy": (
        "Entropy of the policy",
        "entropy per token (nats)",
        (("entropy", "policy/entropy"),),
        "A fall towards 0 means that the rollouts of a prompt become alike and leave nothing to compare.",
    ),
    "judge": (
        "Judge: agreement with the truth, and silence",
        "share (%)",
        (
            ("orders pairs rightly", "judge/agreement"),
            ("UNKNOWN", "judge/unknown_share"),
            ("missing", "judge/missing_share"),
            ("groups judged alike", "judge/alike_share"),
        ),
        "Of two audited rollouts of one prompt with different truths, how often the better one has the higher score, "
        "equal scores half: 50% is a coin. Levels answered UNKNOWN, rollouts without a judgment, and groups that the "
        "judge cannot tell apart are of the policy share.",
    ),
    "missing": (
        "Missing rewards",
        "share (%)",
        (("missing rewards", "reward/missing_share"), ("groups all alike", "reward/zero_spread_share")),
        "Missing rewards take no part in baselines, spreads or pairs; a group of equal rewards teaches nothing.",
    ),
}
_PERCENT = frozenset({"coverage", "audit", "judge", "missing"})
_STATUS_MARKS = {
    "under_coverage": "✗",
    "no_overlap": "✗",
    "concept_drift": "✗",
    "over_coverage": "▲",
    "too_little_evidence": "?",
}
_PARTS = {
    **{f"time/update_{name}_s": "time/update_s" for name in ("prepare", "forward", "backward", "optimizer")},
    "time/gate_s": "time/orchestration_s",
}
"""Times that are inside another one."""
_WHOLE = "time/iteration_s"


def report_charts(summary: RunSummary, *, max_iterations: int, max_points: int) -> dict[str, Chart]:
    """Draw every chart of a run; iterations beyond the limit are left out from the front."""
    charts = {name: line_chart(_plot(summary, name, max_iterations)) for name in _PLOTS if _has_place(summary, name)}
    charts["calibration"] = _calibration(summary, max_points)
    charts["time"] = _time_chart(summary)
    return charts


def _has_place(summary: RunSummary, name: str) -> bool:
    return any(summary.shows(key) for _, key in _PLOTS[name][2])


def _plot(summary: RunSummary, name: str, max_iterations: int) -> LinePlot:
    title, y_label, lines, note = _PLOTS[name]

    def column(key: str) -> list[float | None]:
        return summary.column(key)[-max_iterations:]

    def held(key: str) -> Values:
        return [None if miss is None else 1 - miss for miss in column(key)]

    covers, target = name == "coverage", summary.last_known("coverage/target")
    marks = [_STATUS_MARKS.get(str(row.get("status")), "") for row in summary.iterations[-max_iterations:]]
    return LinePlot(
        title=title,
        y_label=y_label,
        iterations=summary.iteration_numbers[-max_iterations:],
        lines=[(label, column(key)) for label, key in lines if summary.shows(key)],
        note=note,
        is_share=name in _PERCENT,
        band=(column("coverage/band_lower"), column("coverage/band_upper")) if covers else None,
        bounds=(held("monitor/miss_upper"), held("monitor/miss_lower")) if covers else None,
        bounds_name="sequential bound, run so far",
        target=target[1] if covers and target else None,
        marks=marks if covers else (),
    )


def _calibration(summary: RunSummary, max_points: int) -> Chart:
    points = [
        CalibrationPoint(
            series=f"{row.pool} rows",
            label=row.label,
            predicted=row.predicted,
            observed=row.observed,
            lower=row.lower,
            upper=row.upper,
            count=row.count,
        )
        for row in summary.calibration[:max_points]
        if row.predicted is not None and row.observed is not None
    ]
    note = (
        "Marks on the dashed line are scored as they turn out; large ones count most, and each bar is a band by "
        "prompt. Audit rows are of the run's own policies: where they leave the line, the judge's states have come to "
        "mean something else. The table has the numbers."
    )
    return calibration_chart("Predicted against observed reward", points, note=note)


def _time_chart(summary: RunSummary) -> Chart:
    bars, whole = [], None
    for metric in METRICS:
        known = [value for value in summary.column(metric.key) if value is not None]
        if metric.kind != "seconds" or not known:
            continue
        if metric.key == _WHOLE:
            whole = math.fsum(known)
        else:
            # Where the other one was not measured, this is no part of a bar.
            is_part = metric.key in _PARTS and summary.last_known(_PARTS[metric.key]) is not None
            name = metric.label.removeprefix("update: ")
            bars.append(Bar(name=name, value=math.fsum(known), is_part=is_part))
    total = whole or math.fsum(bar.value for bar in bars if not bar.is_part)
    note = "Sum over iterations; a part that was not measured has no bar, and a thin bar is inside the one before. "
    note += orchestration_text(summary)
    return bar_chart("Time by part, whole run", bars, unit="s", total=total, note=note)


def orchestration_text(summary: RunSummary) -> str:
    """Say which share of the measured iterations went to tasks, tracking and gates."""
    pairs = zip(summary.column("time/orchestration_s"), summary.column(_WHOLE), strict=True)
    known = [(part, whole) for part, whole in pairs if part is not None and whole is not None]
    whole = math.fsum(whole for _, whole in known)
    if not whole:
        return "The share of orchestration was not measured."
    share = share_text(math.fsum(part for part, _ in known) / whole)
    return f"Orchestration (tasks, tracking, expectations) took {share} of {len(known)} iterations."
