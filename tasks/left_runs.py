"""Flow runs whose worker is gone are marked Crashed, so that none says Running for ever; plain HTTP, no Prefect inside.

A worker marks a flow run whose process was killed. Whose worker or server was killed is marked by the next one: while
no worker of the pool lives, nothing of the pool can be at work.
"""

import base64
import json
import os
import time
import urllib.error
import urllib.request
from typing import Any

_UNFINISHED = ("RUNNING", "PENDING", "CANCELLING")
_TIMEOUT_S = 10
_PAUSES_S = (0.2, 1.0, 3.0, 0.0)


def fetch(address: str, body: bytes | None = None) -> bytes | None:
    """Return what a server answers, None where it does not, or refuses.

    Parameters
    ----------
    address
        Of a Prefect or MLflow server; Prefect's API gets the login of `PREFECT_API_AUTH_STRING`.
    body
        JSON to post; None asks only.
    """
    request = urllib.request.Request(address, data=body, headers={"Content-Type": "application/json"})
    if (auth := os.environ.get("PREFECT_API_AUTH_STRING")) and "/api/" in address:
        request.add_header("Authorization", f"Basic {base64.b64encode(auth.encode()).decode()}")
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
            return bytes(answer.read())
    except (urllib.error.URLError, OSError):
        return None


def mark_left_runs(api: str, pool: str) -> list[str]:
    """Mark every flow run of a pool that no worker carries any more as Crashed; return their names.

    Parameters
    ----------
    api
        Address of the Prefect API; where it does not answer nothing is marked.
    pool
        Work pool of which no worker lives.
    """
    left = _post(
        f"{api}/flow_runs/filter",
        {"flow_runs": {"state": {"type": {"any_": list(_UNFINISHED)}}}, "work_pools": {"name": {"any_": [pool]}}},
    )
    state = {
        "type": "CRASHED",
        "name": "Crashed",
        "message": "Its worker or server was ended; run it again, and it goes on from the last complete iteration.",
    }
    return [
        str(run["name"])
        for run in left or ()
        if _post(f"{api}/flow_runs/{run['id']}/set_state", {"state": state, "force": True}) is not None
    ]


def _post(address: str, value: dict[str, Any]) -> Any:
    """Return the answer; a server that is too busy for its database answers nothing at first, and is asked again."""
    for pause in _PAUSES_S:
        found = fetch(address, json.dumps(value).encode())
        if found is not None:
            return json.loads(found)
        time.sleep(pause)
    return None
