"""One HTML page that tells a run: did coverage stand, did accuracy move, and what was the policy trained on.

The page stands alone: no script, no outside style, font or image. Everything that came from a person, a data set or
a model is escaped, and its hidden characters are written out. Unknown values show as a dash.
"""

import itertools
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import jinja2
from markupsafe import Markup, escape

from rangeline.evaluation import report_text
from rangeline.evaluation.report_charts import interval_strip
from rangeline.evaluation.report_findings import flip_finding, judge_finding
from rangeline.evaluation.report_plots import report_charts
from rangeline.evaluation.report_words import (
    Finding,
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

_VERDICTS = {
    "right": "✓ right",
    "partial": "◐ partly right",
    "wrong": "✗ wrong",
    "missing": "? missing",
    "unlabelled": "○ unlabelled",
}
_WRITERS = {
    "share": report_text.share_text,
    "number": report_text.number_text,
    "count": report_text.count_text,
    "seconds": report_text.number_text,
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
    environment.filters["level"] = report_text.level_text
    environment.filters |= {"estimate": estimate_text, "change": change_text}
    shown = _shown_transcripts(summary.transcripts)
    return environment.get_template("report_template.html").render(
        run=summary,
        findings=_findings(summary),
        table=summary_table(summary)[:_MAX_ROWS],
        charts=report_charts(summary, max_iterations=_MAX_ROWS, max_points=_MAX_ROWS),
        iteration_tables=_iteration_tables(summary),
        transcripts=[(name, list(items)) for name, items in itertools.groupby(shown, key=_place)],
        num_shown=len(shown),
        num_transcripts_left_out=len(summary.transcripts) - len(shown),
        checks_met=[check for check in summary.expectations if check.success][:_MAX_ROWS],
        checks_open=[check for check in summary.expectations if not check.success][:_MAX_ROWS],
        max_rows=_MAX_ROWS,
    )


def _findings(summary: RunSummary) -> list[Finding]:
    told = [coverage_finding(summary), *map(accuracy_finding, summary.told_evaluations[:_MAX_ROWS])]
    return told + [finding for finding in (flip_finding(summary), judge_finding(summary)) if finding is not None]


def _place(shown: "_ShownTranscript") -> str:
    """Name the part of the transcripts that one belongs to."""
    share = "trained on" if shown.transcript.share == "policy" else "audited, never trained on"
    return f"Iteration {shown.transcript.iteration}, {share}"


def _finalize(value: Any) -> Any:
    """Write every value of the template: no text reaches the page around it."""
    if value is None:
        return report_text.DASH
    return value if isinstance(value, Markup) else _shown_text(str(value))


def _shown_text(text: str) -> str:
    return report_text.visible(report_text.shortened(text, _MAX_TEXT))


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
