"""Flow `evaluate`: accuracy of policies on held-out prompts with clustered intervals, compared prompt by prompt."""

from typing import Any

from prefect import flow
from pydantic import Field

from flows.common import DataRequest, settings_with
from rangeline.config import EvaluateConfig
from tasks.evaluation import compare_policies, evaluate_policy
from tasks.lineage import read_settings_of
from tasks.records import record_evaluation


class EvaluateRequest(DataRequest):
    """What to evaluate."""

    policies: tuple[str, ...] = Field(
        ("warmup",), min_length=1, description="'warmup', a run's name (its last checkpoint) or a checkpoint folder"
    )
    evaluate: EvaluateConfig = EvaluateConfig()


@flow(name="evaluate", description=__doc__)
def evaluate(request: EvaluateRequest = EvaluateRequest()) -> dict[str, Any]:
    """Evaluate each policy; return metrics by policy, and the paired change from the first to the last."""
    settings = read_settings_of(request.workspace)
    config = settings_with(settings, evaluate=request.evaluate)
    results = {}
    for name in request.policies:
        results[name] = evaluate_policy(request.workspace, config, name)
        record_evaluation(request.workspace, name, str(results[name].folder), results[name].metrics)
    first, last = request.policies[0], request.policies[-1]
    paired = compare_policies(results[first], results[last], config) if first != last else {}
    return {"results": results, "paired": paired}
