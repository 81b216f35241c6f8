"""Flow `audit`: from a checkpoint, run or model version back to every byte it came from, verified by hash."""

from prefect import flow
from pydantic import Field

from flows.common import DataRequest
from rangeline.errors import LineageError
from tasks.lineage import audit_target


class AuditRequest(DataRequest):
    """What to audit."""

    target: str = Field(description="A run, a checkpoint or data folder, or a model version such as champion or 3")


@flow(name="audit", description=__doc__)
def audit(request: AuditRequest) -> int:
    """Verify the whole chain below the target; return the number of files that match.

    Raises
    ------
    LineageError
        When a file differs; names the first.
    """
    _, failures, matching = audit_target(request.workspace, request.target)
    if failures:
        msg = f"'{failures[0].path}': {failures[0].detail}. {len(failures)} of {matching + len(failures)} files differ."
        raise LineageError(msg)
    return int(matching)
