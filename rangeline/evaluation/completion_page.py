"""One HTML page of an iteration's completions: what was written, what it earned, and what it was credited with.

The page stands alone: no script, no outside style, font or image. Prompts and completions are hostile data: they are
escaped and their hidden characters written out. Unknown values show as a dash.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import jinja2

from rangeline.evaluation.report_text import DASH, number_of, number_text, shortened, signed_text, visible

_MAX_TEXT = 2000
"""Characters shown of one text; longer ones say how many were left out."""
_MAX_ROWS = 400
"""Rows shown, the first of them; the table holds all."""


def completion_page(rows: Sequence[Mapping[str, Any]], *, title: str) -> str:
    """Return the page of a table of completions.

    Parameters
    ----------
    rows
        Completions, those of one prompt next to each other, with `prompt_id`, `prompt`, `sample`, `completion`,
        `num_tokens`, `finish_reason`, `source`, `lower`, `upper`, `advantage` and `kept`. A prompt or completion that
        is None is not to be shown.
    title
        Heading of the page.

    Returns
    -------
    str
        HTML that can be encoded as UTF-8; equal rows give equal pages.
    """
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("rangeline.evaluation", ""),
        autoescape=True,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    shown = [row for row in rows if row["completion"] is not None][:_MAX_ROWS]
    groups = [
        {"prompt_id": key[0], "prompt": key[1], "rows": [_cells(row) for row in members]}
        for key, members in itertools.groupby(shown, key=lambda row: (row["prompt_id"], row["prompt"]))
    ]
    return environment.get_template("completion_template.html").render(
        title=title,
        groups=groups,
        num_rows=len(rows),
        num_shown=len(shown),
        num_private=sum(row["completion"] is None for row in rows),
    )


def _cells(row: Mapping[str, Any]) -> dict[str, Any]:
    lower, upper = number_of(row["lower"]), number_of(row["upper"])
    reward = DASH if lower is None or upper is None else f"[{number_text(lower)}, {number_text(upper)}]"
    return {
        "sample": row["sample"],
        "num_tokens": row["num_tokens"],
        "finish": row["finish_reason"],
        "source": row["source"] or DASH,
        "reward": reward if lower != upper or lower is None else number_text(lower),
        "advantage": signed_text(number_of(row["advantage"])),
        "kept": "yes" if row["kept"] else "no",
        "completion": row["completion"],
    }


def _finalize(value: Any) -> str:
    """Write every value of the template: no text reaches the page around it."""
    # Cut first: a text may be a thousand times longer than what is shown of it.
    return DASH if value is None else visible(shortened(str(value), _MAX_TEXT))
