"""Flow `calibrate`: roll out the warmed-up policy on the source and calibration pools, judge, fit, freeze.

1. `calibrate` through DVC: judged pools, scorer, scale.
2. The calibration set must be large enough for alpha, or the intervals could never be bounded.
3. The calibration report, and the tracking record.
"""

from prefect import flow
from pydantic import Field

from flows.common import DataRequest
from tasks.data import record_stage, reproduce_stages, say_data_status
from tasks.lineage import check_calibration


class CalibrateRequest(DataRequest):
    """What `calibrate` needs to know."""

    alpha: float = Field(0.1, gt=0, lt=1, description="Miss rate that the calibration set must be able to serve")


@flow(name="calibrate", description=__doc__)
def calibrate(request: CalibrateRequest = CalibrateRequest()) -> None:
    """Make the calibration of a workspace."""
    reproduce_stages(request.workspace, ("calibrate",))
    check_calibration(request.workspace, request.alpha)
    record_stage(request.workspace, "calibration")
    say_data_status(request.workspace)
