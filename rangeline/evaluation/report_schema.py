"""The form of a report's numbers as a JSON schema, so that other programs can read and check `report.json`.

The version is raised where a name changes its meaning or goes; new names may come without it.
"""

from typing import Any

from rangeline.evaluation.run_summary import METRICS

SCHEMA_NAME, SCHEMA_VERSION = "rangeline-report", 2

_NUMBER: dict[str, Any] = {"type": ["number", "null"]}
_SHARE: dict[str, Any] = {"type": ["number", "null"], "minimum": 0, "maximum": 1}
_COUNT: dict[str, Any] = {"type": ["number", "null"], "minimum": 0}
_TEXT: dict[str, Any] = {"type": "string"}
_OF_KIND = {"share": _SHARE, "number": _NUMBER, "count": _COUNT, "seconds": _NUMBER}


def report_schema() -> dict[str, Any]:
    """Return the schema of `report.json` (JSON Schema 2020-12); null stands for what is not known, never 0."""
    estimate = _object({"value": _NUMBER, "lower": _NUMBER, "upper": _NUMBER, "num_prompts": _COUNT})
    evaluation = {"domain": _TEXT, "num_prompts": _COUNT, "before": _or_null(estimate), "after": _or_null(estimate)}
    names = {
        metric.key: {**_OF_KIND[metric.kind], "description": f"{metric.group}: {metric.label}, as a {metric.kind}"}
        for metric in METRICS
    }
    iteration = _object({"iteration": {"type": "number"}, "status": _TEXT, **names}, required=("iteration", "status"))
    point = {
        "label": _TEXT,
        "pool": {"enum": ["calibration", "audit"]},
        **dict.fromkeys(("predicted", "observed", "lower", "upper"), _SHARE),
        **dict.fromkeys(("count", "num_prompts"), _COUNT),
    }
    check = {"name": _TEXT, "success": {"type": ["boolean", "null"]}, "detail": _TEXT}
    parts = {
        "schema": {"const": SCHEMA_NAME},
        "schema_version": {"const": SCHEMA_VERSION},
        "run": _TEXT,
        "description": _TEXT,
        "notes": _list(_TEXT),
        "table": {"type": "object", "additionalProperties": _TEXT, "description": "The closing table, in words"},
        "evaluations": _list(_object({**evaluation, "paired": {"type": ["object", "null"]}})),
        "iterations": _list(iteration),
        "calibration": _list(_object(point)),
        "expectations": _list(_object(check)),
        "budget": {"type": "object", "additionalProperties": _COUNT},
        "run_card": {"type": "object", "additionalProperties": _TEXT},
        "settings": {"type": "object"},
        "lineage": _list(_object({"kind": _TEXT, "path": _TEXT, "sha256": _TEXT})),
        "confidence": _object({"accuracy": _SHARE, "coverage_band": _SHARE}),
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"{SCHEMA_NAME} {SCHEMA_VERSION}",
        **_object(parts),
    }


def _object(properties: dict[str, Any], required: tuple[str, ...] | None = None) -> dict[str, Any]:
    names = list(properties) if required is None else list(required)
    return {"type": "object", "properties": properties, "required": names}


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]}
