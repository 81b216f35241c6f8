"""One HTML page that tells a comparison: a finding, a table and curves for each design, losing ones like winning ones.

The page stands alone: no script, no outside style, font or image; every text is escaped.
"""

from typing import Any

import jinja2
from markupsafe import Markup

from rangeline.evaluation import comparison_text as text
from rangeline.evaluation.comparison_charts import difference_chart
from rangeline.evaluation.comparison_curves import curves
from rangeline.evaluation.comparison_tables import accuracy_table, flip_table
from rangeline.evaluation.comparison_text import ComparisonSummary
from rangeline.evaluation.report_text import visible


def comparison_page(summary: ComparisonSummary) -> str:
    """Return the page of a comparison.

    Parameters
    ----------
    summary
        Everything that the page shows; texts in it may be hostile.

    Returns
    -------
    str
        HTML; equal summaries give equal pages.
    """
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("rangeline.evaluation", ""),
        autoescape=True,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    designs = [
        {
            "name": design.design,
            "finding": text.finding(design, summary.confidence),
            "header": text.header(design),
            "rows": text.rows(design),
            "reference": design.reference,
            "legend": text.legend(design),
            "missing": "; ".join(design.missing),
            "differences": difference_chart(design),
            "flips": flip_table(design),
            "curves": Markup(_inline(curves(design))),  # drawn here; matplotlib escapes the texts in it
        }
        for design in summary.designs
    ]
    return environment.get_template("comparison_template.html").render(
        summary=summary,
        designs=designs,
        accuracy=accuracy_table(summary.designs) if len(summary.designs) > 1 else None,
        tuning=text.tuning_text(summary.tuning).splitlines() if summary.tuning else [],
        failures=sorted(summary.failures.items()),
    )


def _finalize(value: Any) -> Any:
    return value if isinstance(value, Markup) else visible(str(value))


def _inline(svg: str) -> str:
    """Return the drawing as decoration of its figure, without the prologue that only a file of its own may have."""
    # The words beside it and the tables carry its numbers; a tree of nameless paths says nothing to a screen reader.
    return svg[svg.index("<svg") :].replace("<svg ", '<svg aria-hidden="true" focusable="false" ', 1)
