"""Flow `anchors`: what reward source `anchor_contrast` needs before training.

1. `anchors` and `metric_head` through DVC: conditioned rollouts of the starting policy, represented, and the head.
2. The head's report: whether the conditions made a difference that carries over to held-out prompts.
3. The tracking records.
"""

from prefect import flow

from flows.common import DataRequest
from tasks.data import record_stage, reproduce_stages, say_data_status
from tasks.lineage import show_head

STAGES = ("anchors", "metric_head")


def make_anchors(workspace: str) -> None:
    """Bring anchors and metric head up to date; what is as locked is not made again."""
    reproduce_stages(workspace, STAGES)
    show_head(workspace)
    for stage in STAGES:
        record_stage(workspace, stage)


@flow(name="anchors", description=__doc__)
def anchors(request: DataRequest = DataRequest()) -> None:
    """Make the anchors and the metric head of a workspace."""
    make_anchors(request.workspace)
    say_data_status(request.workspace)
