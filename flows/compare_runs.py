"""Flow `compare`: methods times seeds on the same data, start and sampling streams, at one rollout budget.

1. The seeds of every design: data, start, and what reward sources need (calibration, anchors); once, for all methods.
2. Tuning runs, where the plan asks for them: each method's learning rate, on validation prompts of other seeds.
3. The reported runs, in as many processes as asked for. A run that fails is named and sinks no other.
4. Tables, curves and page; one tracking record a run.
"""

import os
from typing import Any

from prefect import flow
from pydantic import Field

from flows.common import DataRequest
from tasks.comparison import conduct_comparison, plan_comparison, record_comparison, write_comparison


class CompareRequest(DataRequest):
    """What to compare."""

    plan: str | None = Field(None, description="Plan file, such as configs/compare/table1.yaml")
    rewards: str | None = Field(None, description="In place of a plan: reward sources parted by commas, or all")
    iterations: int | None = Field(None, ge=1, description="Of each run of the named sources; empty: the settings' own")
    processes: int = Field(0, ge=0, description="Runs at once, one thread each; 0: as many as there are cores")
    copy_to: str | None = Field(None, description="Folder that also gets the table and the curves")
    settings: tuple[str, ...] = Field((), description="Settings a.b=c laid over the plan's")


@flow(name="compare", description=__doc__)
def compare(request: CompareRequest) -> dict[str, Any]:
    """Conduct a comparison, or what is left of it; return where its results lie and what failed."""
    processes = request.processes or len(os.sched_getaffinity(0))
    plan = plan_comparison(
        request.workspace, request.plan, request.rewards, iterations=request.iterations, assignments=request.settings
    )
    conduct_comparison(request.workspace, plan, processes, request.settings if request.plan else ())
    results = write_comparison(request.workspace, plan, request.copy_to)
    record_comparison(request.workspace, plan)
    return {"page": results.page, "findings": results.findings, "failures": dict(results.failures)}
