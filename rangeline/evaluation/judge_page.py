"""The reliability report of a judge as Markdown and as one HTML page; every text in it is escaped and made visible."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup, escape

from rangeline.evaluation.judge_reliability import CoordinateInformation
from rangeline.evaluation.report_text import markdown_cell, visible

_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:72rem;margin:2rem auto;padding:0 1rem;color:#222}"
    ".wide{overflow-x:auto;margin:.5rem 0 1.5rem}table{border-collapse:collapse}"
    "th,td{border:1px solid #ccc;padding:.25rem .6rem;text-align:right}th:first-child,td:first-child{text-align:left}"
    "th{background:#f3f3f3}h2{margin-top:2rem}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinateReport:
    """One coordinate: what it says, how steady it is, what attacks do to it."""

    name: str
    kind: str
    information: CoordinateInformation
    flips: Mapping[str, tuple[float | None, int]]
    """Share and pairs of order, position and repeat flips; empty where nobody is asked."""
    injections: Sequence[tuple[str, float | None, int]]
    """Attack, share lifted, completions; the harmless text first; empty where nobody is asked."""
    warnings: tuple[str, ...]
    """Sentences about what a reader should know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeReport:
    """Everything that the pages show."""

    judge: str
    rubric: str
    way: str
    """How the judge is asked."""
    digest: str
    num_rows: int
    num_prompts: int
    coordinates: tuple[CoordinateReport, ...]
    free_text: tuple[Mapping[str, Any], ...]
    """Per choice coordinate: how the same model does when it writes; empty where it was not tried."""
    gate: tuple[str, ...]
    """What the gate says; empty where it lets the judge pass."""


Table = tuple[str, list[str], list[list[str]]]
"""Heading, header and rows."""


def tables(report: JudgeReport) -> list[Table]:
    """Return the tables of a report, as texts."""
    says = [
        [
            item.name,
            _number(item.information.auc),
            _number(item.information.kappa),
            _number(item.information.information_bits),
            _number(item.information.chance_bits),
            _number(item.information.p_value, 4),
            _share(item.information.unknown_share),
            _share(item.information.missing_share),
            _number(item.information.length_correlation),
            item.information.recommendation,
        ]
        for item in report.coordinates
    ]
    result: list[Table] = [
        (
            "What each coordinate says about the truth",
            ["coordinate", "AUC", "kappa", "I(Z;Y) bits", "by chance", "p", "UNKNOWN", "missing", "length", "verdict"],
            says,
        )
    ]
    flips = [
        [item.name, *(_pair(item.flips.get(kind)) for kind in ("order", "position", "repeat"))]
        for item in report.coordinates
        if item.flips
    ]
    if flips:
        result.append(
            ("Verdicts that turn with what means nothing", ["coordinate", "order", "position", "repeat"], flips)
        )
    attacks = [
        [item.name, attack, _share(lifted), str(rows)]
        for item in report.coordinates
        for attack, lifted, rows in item.injections
    ]
    if attacks:
        header = ["coordinate", "appended to wrong completions", "verdicts lifted", "completions"]
        result.append(("Completions that speak to the judge", header, attacks))
    if report.free_text:
        header = ["coordinate", "valid JSON", "readable replies", "order flips", "position flips"]
        result.append(
            ("The same model when it writes its replies", header, [_written(item) for item in report.free_text])
        )
    return result


def findings(report: JudgeReport) -> list[str]:
    """Return what follows, a sentence each."""
    lines = []
    for item in report.coordinates:
        words = {
            "informative": "carries information about the truth: keep it",
            "noise": "is noise on these rollouts: leave it out or reword it",
            "undecided": "cannot be decided: there are too few labelled rollouts, or all have one truth",
        }[item.information.recommendation]
        lines.append(f"'{item.name}' {words}.")
        lines += [f"'{item.name}': {warning}" for warning in item.warnings]
    lines += report.gate or ("The gate lets this judge pass as it is asked.",)
    return lines


def markdown_page(report: JudgeReport) -> str:
    """Return the report as Markdown."""
    parts = [
        f"# Reliability of the judge\n\n{_about(report)}\n",
        *(f"- {markdown_cell(line)}" for line in findings(report)),
    ]
    for heading, header, rows in tables(report):
        parts += [f"\n## {heading}\n", _row(header), _row(["---"] * len(header)), *(_row(cells) for cells in rows)]
    return "\n".join(parts) + "\n"


def html_page(report: JudgeReport) -> str:
    """Return the report as a page that stands alone: no script, no outside style, font or image."""
    parts = [Markup("<p>{}</p><ul>").format(visible(_about(report)))]
    parts += [Markup("<li>{}</li>").format(visible(line)) for line in findings(report)]
    parts.append(Markup("</ul>"))
    for heading, header, rows in tables(report):
        head = Markup("").join(Markup("<th>{}</th>").format(visible(name)) for name in header)
        body = Markup("").join(
            Markup("<tr>{}</tr>").format(Markup("").join(Markup("<td>{}</td>").format(visible(cell)) for cell in cells))
            for cells in rows
        )
        parts.append(
            Markup(
                "<h2>{0}</h2><div class='wide' tabindex='0' role='region' aria-label='{0}'>"
                "<table><thead><tr>{1}</tr></thead><tbody>{2}</tbody></table></div>"
            ).format(heading, head, body)
        )
    title = escape("Reliability of the judge")
    return (
        f"<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        f"<meta name='viewport' content='width=device-width, initial-scale=1'><title>{title}</title>"
        f"<style>{_STYLE}</style></head><body><main><h1>{title}</h1>{Markup('').join(parts)}</main></body></html>\n"
    )


def _about(report: JudgeReport) -> str:
    return (
        f"Judge {report.judge}, asked by {report.way}, rubric '{report.rubric}', digest {report.digest[:12]}; "
        f"{report.num_rows} labelled rollouts of {report.num_prompts} prompts."
    )


def _written(item: Mapping[str, Any]) -> list[str]:
    counts = [f"{item[name]} of {item['asked']}" for name in ("valid_json", "readable")]
    return [str(item["name"]), *counts, _pair(item["order_flips"]), _pair(item["position_flips"])]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(markdown_cell(cell) for cell in cells)} |"


def _number(value: float | None, digits: int = 3) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _pair(value: tuple[float | None, int] | None) -> str:
    if value is None or value[0] is None:
        return "-"
    return f"{round(value[0] * value[1])} of {value[1]}"
