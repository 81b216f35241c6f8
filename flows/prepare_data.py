"""Flow `prepare`: ingest prompts, check them, split them into disjoint pools, prove it, version them.

1. `generate`, `ingest`, `split` through DVC: only what changed is made again.
2. The pools against their expectation suite: a failed expectation stops the flow.
3. The tracking record, with each pool as a data set.
"""

from prefect import flow
from pydantic import Field

from flows.common import DataRequest
from tasks.data import record_stage, reproduce_stages, require_sound_pools


class PrepareRequest(DataRequest):
    """What `prepare` needs to know."""

    force: bool = Field(False, description="Make everything again, even what did not change")


@flow(name="prepare", description=__doc__)
def prepare(request: PrepareRequest = PrepareRequest()) -> dict[str, int]:
    """Make the pools of a workspace; return their sizes."""
    reproduce_stages(request.workspace, ("generate", "ingest", "split"), force=request.force)
    counts = require_sound_pools(request.workspace)
    record_stage(request.workspace, "pools")
    return counts
