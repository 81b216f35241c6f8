"""One HTML page that tells a run: did coverage stand, did accuracy move, and what was the policy trained on.

The page stands alone: no script, no outside style, font or image. Everything that came from a person, a data set or
a model is escaped, and its hidden characters are written out. Unknown values show as a dash.
"""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import jinja2
from markupsafe import Markup, escape

from rangeline.evaluation import report_text
from rangeline.evaluation.report_charts import Chart, LinePlot, bar_chart, calibration_chart, interval_strip, line_chart
from rangeline.evaluation.report_words import (
    accuracy_finding,
    change_text,
    coverage_finding,
    estimate_text,
    summary_table,
)
from rangeline.evaluation.run_summary import METRICS, RunSummary, Transcript, TranscriptRollout

__all__ = ["RunSummary", "render_report", "summary_table"]

_MAX_TEXT = 4000
"""Characters shown of one text; longer ones say how many were left out."""
_MAX_ROWS = 400
"""Rows shown of one table; of iterations the last ones."""
_MAX_TRANSCRIPT_BYTES = 1_200_000
"""Room for the texts of transcripts, so that the whole page stays under 3 MB."""
_ROLLOUT_BYTES = 1200
"""What the frame around one rollout takes."""

_VERDICTS = {"right": "✓ right", "wrong": "✗ wrong", "missing": "? missing", "unlabelled": "○ unlabelled"}
_WRITERS = {
    "share": report_text.share_text,
    "number": report_text.number_text,
    "count": report_text.count_text,
    "seconds": report_text.number_text,
}
_PLOTS = {
    "coverage": (
        "Coverage of the truth by iteration",
        "rollouts covered (%)",
        (("coverage", "coverage/empirical"), ("policy rollouts (oracle)", "oracle/coverage")),
        "Share of labelled held-out rollouts whose truth lies inside its interval. It stands where the band holds the "
        "target. Marks: ✗ under coverage, ▲ over coverage, ? too little evidence.",
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
    "missing": (
        "Missing rewards and unknown judgments",
        "share (%)",
        (("missing rewards", "reward/missing_share"), ("judge unknown", "judge/unknown_share")),
        "Missing rewards take no part in baselines, spreads or pairs.",
    ),
    "flips": (
        "Advantage sign flips against the midpoint",
        "rollouts (number)",
        (("sign flips", "advantage/sign_flips"),),
        "Rollouts whose advantage has another sign than the middle of the interval alone would give.",
    ),
    "entropy": (
        "Entropy of the policy",
        "entropy per token (nats)",
        (("entropy", "policy/entropy"),),
        "A fall towards 0 means that the rollouts of a prompt become alike and leave nothing to compare.",
    ),
    "weights": (
        "Pair weights and active rollouts",
        "weight, or share (0 to 1)",
        (("median pair weight", "advantage/median_pair_weight"), ("active share", "advantage/active_share")),
        "A weight of 1 is a pair of exact rewards. Inactive rollouts have no reward, or no group to compare with.",
    ),
}
_PERCENT = frozenset({"coverage", "audit", "missing"})
_STATUS_MARKS = {
    "under_coverage": "✗",
    "no_overlap": "✗",
    "concept_drift": "✗",
    "over_coverage": "▲",
    "too_little_evidence": "?",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _ShownRollout:
    rollout: TranscriptRollout
    verdict: str
    strip: Markup
    flipped: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _ShownTranscript:
    transcript: Transcript
    verdicts: str
    rollouts: tuple[_ShownRollout, ...]


def render_report(summary: RunSummary) -> str:
    """Return the report of a run as one self-contained HTML page under 3 MB.

    Parameters
    ----------
    summary
        Everything that the page shows; texts in it may be hostile.

    Returns
    -------
    str
        HTML that can be encoded as UTF-8. Long texts, long tables and transcripts beyond the page's room are cut,
        and the page says so.
    """
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("rangeline.evaluation", ""),
        autoescape=True,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {"count": report_text.count_text, "share": report_text.share_text}
    environment.filters |= {"number": report_text.number_text, "signed": report_text.signed_text}
    environment.filters["level"] = "{:.0%}".format
    environment.filters |= {"estimate": estimate_text, "change": change_text}
    shown = _shown_transcripts(summary.transcripts)
    return environment.get_template("report_template.html").render(
        run=summary,
        findings=[coverage_finding(summary), *map(accuracy_finding, summary.evaluations[:_MAX_ROWS])],
        table=summary_table(summary)[:_MAX_ROWS],
        charts=_charts(summary),
        iteration_tables=_iteration_tables(summary),
        transcripts=shown,
        num_transcripts_left_out=len(summary.transcripts) - len(shown),
        max_rows=_MAX_ROWS,
    )


def _finalize(value: Any) -> Any:
    """Write every value of the template: no text reaches the page around it."""
    if value is None:
        return report_text.DASH
    return value if isinstance(value, Markup) else _shown_text(str(value))


def _shown_text(text: str) -> str:
    return report_text.visible(report_text.shortened(text, _MAX_TEXT))


def _charts(summary: RunSummary) -> dict[str, Chart]:
    def column(key: str) -> list[float | None]:
        return summary.column(key)[-_MAX_ROWS:]

    target = summary.last_known("coverage/target")
    marks = [_STATUS_MARKS.get(str(row.get("status")), "") for row in summary.iterations[-_MAX_ROWS:]]
    charts = {}
    for name, (title, y_label, lines, note) in _PLOTS.items():
        covers = name == "coverage"
        plot = LinePlot(
            title=title,
            y_label=y_label,
            iterations=summary.iteration_numbers[-_MAX_ROWS:],
            lines=[(label, column(key)) for label, key in lines if summary.shows(key)],
            note=note,
            is_share=name in _PERCENT,
            band=(column("coverage/band_lower"), column("coverage/band_upper")) if covers else None,
            target=target[1] if covers and target else None,
            marks=marks if covers else (),
        )
        charts[name] = line_chart(plot)
    points = [
        (row.label, row.predicted, row.observed, row.count)
        for row in summary.calibration[:_MAX_ROWS]
        if row.predicted is not None and row.observed is not None
    ]
    note = "Points on the dashed line are scored as they turn out; large points count most. The table has the numbers."
    charts["calibration"] = calibration_chart("Predicted against observed reward", points, note=note)
    charts["time"] = _time_chart(summary)
    return charts


def _time_chart(summary: RunSummary) -> Chart:
    bars = []
    for metric in METRICS:
        known = [value for value in summary.column(metric.key) if value is not None]
        if metric.kind == "seconds" and known:
            bars.append((metric.label, math.fsum(known)))
    note = "Sum over iterations; a part that was not measured has no bar. " + _orchestration_text(summary)
    return bar_chart("Time by part, whole run", bars, unit="s", note=note)


def _orchestration_text(summary: RunSummary) -> str:
    """Say which share of the measured iterations went to tasks, tracking and gates."""
    pairs = zip(summary.column("time/orchestration_s"), summary.column("time/iteration_s"), strict=True)
    known = [(part, whole) for part, whole in pairs if part is not None and whole is not None]
    whole = math.fsum(whole for _, whole in known)
    if not whole:
        return "The share of orchestration was not measured."
    share = report_text.share_text(math.fsum(part for part, _ in known) / whole)
    return f"Orchestration (tasks, tracking, expectations) took {share} of {len(known)} iterations."


def _iteration_tables(summary: RunSummary) -> list[tuple[str, list[str], list[list[str]]]]:
    """Return name, header and rows of one table a group of metrics."""
    tables = []
    numbers = [f"{number:g}" for number in summary.iteration_numbers]
    for group in dict.fromkeys(metric.group for metric in METRICS):
        metrics = [metric for metric in METRICS if metric.group == group and summary.shows(metric.key)]
        if not metrics:
            continue
        columns = [[_WRITERS[metric.kind](value) for value in summary.column(metric.key)] for metric in metrics]
        labels = [f"{metric.label} (s)" if metric.kind == "seconds" else metric.label for metric in metrics]
        if group == "Coverage":
            labels.append("status")
            columns.append([str(row.get("status") or report_text.DASH).replace("_", " ") for row in summary.iterations])
        rows = [list(row) for row in zip(numbers, *columns, strict=True)]
        tables.append((group, ["iteration", *labels], rows[-_MAX_ROWS:]))
    return tables


def _shown_transcripts(transcripts: Iterable[Transcript]) -> list[_ShownTranscript]:
    shown, room = [], _MAX_TRANSCRIPT_BYTES
    for transcript in transcripts:
        texts = [transcript.prompt, transcript.reference or ""]
        texts += [text for rollout in transcript.rollouts for text in (rollout.completion, rollout.state)]
        room -= sum(len(escape(_shown_text(text)).encode()) for text in texts)
        room -= _ROLLOUT_BYTES * (1 + len(transcript.rollouts))
        if room < 0:
            break
        counts = Counter(_VERDICTS[rollout.verdict] for rollout in transcript.rollouts)
        shown.append(
            _ShownTranscript(
                transcript=transcript,
                verdicts=", ".join(f"{count} {verdict}" for verdict, count in counts.items()),
                rollouts=tuple(map(_shown_rollout, transcript.rollouts)),
            )
        )
    return shown


def _shown_rollout(rollout: TranscriptRollout) -> _ShownRollout:
    lower, upper = report_text.number_of(rollout.lower), report_text.number_of(rollout.upper)
    inside = lower is not None and upper is not None and 0 <= lower <= upper <= 1
    credit, midpoint = report_text.number_of(rollout.advantage), report_text.number_of(rollout.midpoint_advantage)
    return _ShownRollout(
        rollout=rollout,
        verdict=_VERDICTS[rollout.verdict],
        strip=interval_strip(lower, upper) if lower is not None and upper is not None and inside else Markup(""),
        flipped=credit is not None and midpoint is not None and credit * midpoint < 0,
    )
