"""What models, judges and people write cannot become markup, a link, another cell or a command in a report."""

import re

import pytest

from rangeline.evaluation.completion_page import completion_page
from rangeline.evaluation.report_text import markdown_cell
from rangeline.evaluation.score_table import Cell, benchmark_markdown, preset_markdown
from tasks.expectation_page import PageRow, html_page, markdown_page

ATTACKS = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "a | b | c",
    "a \\| b",
    "[click](javascript:alert(1))",
    "![seen](http://evil.example/x.png)",
    "\\[click](http://evil.example)",
    "one\n| two | three |\n\n# four",
    "one\r\n\r\n<b>two",
    "\u202etxt.exe\u2066",
    "\x1b[2J\x07",
    "=cmd|' /C calc'!A0",
]
ROW = {
    "prompt_id": "p",
    "prompt": "2 + 2",
    "sample": 0,
    "completion": "four",
    "num_tokens": 1,
    "finish_reason": "stop",
    "source": "verifier",
    "lower": 0.25,
    "upper": 0.75,
    "advantage": 0.5,
    "kept": True,
}


def bars(line):
    """Count the bars that divide cells: those that no backslash takes away."""
    return len(re.findall(r"\|", re.sub(r"\\.", "", line)))


def is_inert(text):
    """Tell whether Markdown holds no tag, no link and no picture, and no character without a glyph."""
    plain = re.sub(r"\\.", "", text)
    return (
        not re.search(r"<[a-zA-Z/!]", plain)
        and "](" not in plain
        and not re.search(r"[\x00-\x08\x0b-\x1f\u202e]", text)
    )


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_cell_stays_one_inert_cell(attack):
    """Text in a cell is one line, opens no cell, tag, link or picture, and hides nothing."""
    cell = markdown_cell(attack)
    assert "\n" not in cell
    assert 0 == bars(cell)
    assert is_inert(cell)


def test_plain_text_is_left_as_it_is():
    """Numbers, intervals and names of files are not touched."""
    for text in ("0.123 [0.1, 0.2]", "range-reciprocal-0.5", "a_b*c", "x >= 3", "5 %"):
        assert text == markdown_cell(text)


@pytest.mark.parametrize("attack", ATTACKS)
def test_tables_of_benchmarks_keep_their_shape(attack):
    """A policy or reason of any name leaves each table with its own rows and cells."""
    harmless = preset_markdown("t", {"name": [Cell(title="a", value=0.5, reason=None, notes=())]})
    hostile = preset_markdown("t", {attack: [Cell(title="a", value=0.5, reason=None, notes=())]})
    tables = [[line for line in text.splitlines() if line.startswith("|")] for text in (harmless, hostile)]
    assert [bars(line) for line in tables[0]] == [bars(line) for line in tables[1]]
    assert is_inert(hostile)
    assert is_inert(
        "".join(line for line in benchmark_markdown({}, {"a": attack}).splitlines() if line.startswith("|"))
    )


@pytest.mark.parametrize("attack", ATTACKS)
def test_pages_show_and_do_not_obey(attack):
    """The page of completions and that of expectations hold no tag that a text brought."""
    page = completion_page([ROW | {"prompt": attack, "completion": attack, "prompt_id": attack}], title=attack)
    row = PageRow(
        table=attack, words=attack, observed=attack, limit=attack, severity="critical", met=False, next_step=attack
    )
    for text in (page, html_page(attack, [row], docs=attack)):
        assert "<script>alert" not in text
        assert "<img src=x" not in text
        assert "\n<b>two" not in text
    told = [line for line in markdown_page([row]).splitlines() if line.startswith("|")]
    assert 3 == len(told)
    assert 1 == len({bars(line) for line in told if not line.startswith("|---")})
