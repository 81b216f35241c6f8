"""Flow `report`: one self-contained page of a run, with evaluations before and after."""

from pathlib import Path
from typing import Any

from prefect import flow
from pydantic import Field

from flows.common import DataRequest
from flows.evaluate_policy import EvaluateRequest, evaluate
from rangeline.config import EvaluateConfig
from tasks.lineage import report_run, require_run


class ReportRequest(DataRequest):
    """Which run to report."""

    run: str = Field(description="Name of the run")
    evaluate: EvaluateConfig = EvaluateConfig()


@flow(name="report", description=__doc__)
def report(request: ReportRequest) -> tuple[Path, list[tuple[str, str]], dict[str, Any]]:
    """Evaluate the start and the end of a run (what was evaluated before is read), and write its page."""
    require_run(request.workspace, request.run)
    asked = EvaluateRequest(workspace=request.workspace, policies=("warmup", request.run), evaluate=request.evaluate)
    evaluated = evaluate(asked)
    page, table = report_run(request.workspace, request.run, evaluated["results"], evaluated["paired"])
    return page, table, evaluated
