"""The result of a check for people: one self-contained page, and the same as Markdown for the Prefect UI.

Observed values carry data, such as prompt ids; they are escaped, and are never markup.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

_ORDER = ("critical", "warning", "info")
_MARKS = {"critical": "✗ broken", "warning": "▲ broken", "info": "· not so"}
_MEANING = {"critical": "closes the gate", "warning": "marks the iteration", "info": "is told"}
_HEAD = ("result", "what is expected", "observed", "limit", "severity", "what to do")
_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem; color: #222 }
table { border-collapse: collapse; width: 100% } th, td { text-align: left; vertical-align: top; padding: .4rem .6rem }
th { border-bottom: 2px solid #888 } td { border-bottom: 1px solid #ddd } .met td { color: #666 }
.critical td:first-child { color: #a31515 } .warning td:first-child { color: #8a5a00 } small { color: #666 }
@media (prefers-color-scheme: dark) { body { background: #181818; color: #ddd }
.critical td:first-child { color: #ff8a80 } .warning td:first-child { color: #ffc46b } .met td, small { color: #999 }
td { border-color: #444 } a { color: #8ab4f8 } }
.wide { overflow-x: auto }
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRow:
    """One expectation and how it came out."""

    table: str
    words: str
    observed: str
    limit: str
    severity: str
    """critical, warning or info."""
    met: bool
    next_step: str
    """What a person does when it is broken."""


def _sorted(rows: Sequence[PageRow]) -> list[PageRow]:
    return sorted(rows, key=lambda row: (row.met, _ORDER.index(row.severity)))


def _headline(rows: Sequence[PageRow]) -> str:
    broken = Counter(row.severity for row in rows if not row.met)
    counts = [f"{broken[severity]} {severity} ({_MEANING[severity]})" for severity in _ORDER if broken[severity]]
    gate = "The gate is closed" if broken["critical"] else "The gate is open"
    return (
        f"{gate}: {len(rows) - broken.total()} of {len(rows)} met{'; broken: ' if counts else ''}{', '.join(counts)}."
    )


def html_page(title: str, rows: Sequence[PageRow], *, docs: str) -> str:
    """Write the page: what is broken first, each expectation in words, with what to do about it.

    Parameters
    ----------
    title
        What was checked.
    rows
        Every expectation.
    docs
        Link to the Data Docs, relative to the page.
    """
    head = Markup().join(Markup("<th scope='col'>{}</th>").format(name) for name in _HEAD)
    body = Markup("\n").join(
        Markup(
            "<tr class='{}'><td>{}</td><td>{}<br><small>{}</small></td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>"
            "</tr>"
        ).format(
            "met" if row.met else row.severity,
            _mark(row),
            row.words,
            row.table,
            "-" if row.met and row.observed.startswith("0 of ") else row.observed,
            row.limit,
            row.severity,
            "" if row.met else row.next_step,
        )
        for row in _sorted(rows)
    )
    return str(
        Markup(
            "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
            "<meta name='viewport' content='width=device-width, initial-scale=1'>"
            "<title>{0}</title><style>{1}</style></head>\n"
            "<body><main><h1>Expectations: {0}</h1><p><strong>{2}</strong></p>\n"
            "<div class='wide' tabindex='0' role='region' aria-label='Every expectation'>"
            "<table><thead><tr>{3}</tr></thead>\n"
            "<tbody>\n{4}\n</tbody></table></div>\n"
            "<p><a href='{5}'>Data Docs</a> · <a href='result.json'>result.json</a></p></main></body></html>\n"
        ).format(title, Markup(_STYLE), _headline(rows), head, body, docs)
    )


def _mark(row: PageRow) -> str:
    return "✓ met" if row.met else _MARKS[row.severity]


def markdown_page(rows: Sequence[PageRow]) -> str:
    """Write the headline and a table of what is broken, as Markdown."""
    broken = [row for row in _sorted(rows) if not row.met]
    lines = [f"**{_headline(rows)}**"]
    if broken:
        lines += ["", "| " + " | ".join(_HEAD) + " |", "|---" * len(_HEAD) + "|"]
    for row in broken:
        cells = (_mark(row), f"{row.table}: {row.words}", row.observed, row.limit, row.severity, row.next_step)
        lines.append("| " + " | ".join(map(_cell, cells)) + " |")
    return "\n".join(lines)


def _cell(text: str) -> str:
    plain = " ".join(str(escape(text)).split())
    for mark in "\\`*_[]|":
        plain = plain.replace(mark, f"\\{mark}")
    return plain
