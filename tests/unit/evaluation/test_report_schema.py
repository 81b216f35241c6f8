"""The schema of a report's numbers."""

import jsonschema
import pytest

from rangeline.evaluation.report_schema import SCHEMA_VERSION, report_schema
from rangeline.evaluation.run_summary import METRICS


def numbers(**changes):
    """Return the smallest report that the schema takes, with some fields changed."""
    texts = {"schema": "rangeline-report", "run": "r", "description": "d", "schema_version": SCHEMA_VERSION}
    lists = {key: [] for key in ("notes", "evaluations", "iterations", "calibration", "expectations", "lineage")}
    maps = {key: {} for key in ("table", "budget", "run_card", "settings")}
    return {**texts, **lists, **maps, "confidence": {"accuracy": 0.95, "coverage_band": 0.99}, **changes}


def test_schema_is_one_and_describes_every_metric():
    """It is valid JSON Schema, and each number of the page has its name and unit there."""
    schema = report_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    named = schema["properties"]["iterations"]["items"]["properties"]
    assert {metric.key for metric in METRICS} <= set(named)
    assert all(named[metric.key]["description"] for metric in METRICS)
    jsonschema.validate(numbers(), schema)


@pytest.mark.parametrize(
    "changes",
    [
        {"schema_version": SCHEMA_VERSION + 1},
        {"iterations": [{"iteration": 1, "status": "covered", "coverage/empirical": 1.5}]},
        {"iterations": [{"iteration": 1, "status": "covered", "coverage/empirical": "0.9"}]},
        {"iterations": [{"status": "covered"}]},
        {"run": None},
    ],
)
def test_schema_refuses_what_is_no_report(changes):
    """Another version, shares above 1, numbers as texts, and what has no name are refused."""
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(numbers(**changes), report_schema())


def test_unknown_is_null():
    """Null stands for every number that was not measured."""
    row = {"iteration": 1, "status": "not_measured", **{metric.key: None for metric in METRICS}}
    jsonschema.validate(numbers(iterations=[row]), report_schema())
