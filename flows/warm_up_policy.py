"""Flow `warmup`: supervised training of the starting policy on the labelled warm-up pool.

The stage is deterministic, so DVC owns it: with the same pools and settings it is not trained twice.
"""

from prefect import flow

from flows.common import DataRequest
from tasks.data import record_stage, reproduce_stages


@flow(name="warmup", description=__doc__)
def warmup(request: DataRequest = DataRequest()) -> None:
    """Make the starting policy of a workspace."""
    reproduce_stages(request.workspace, ("warmup",))
    record_stage(request.workspace, "warmup")
