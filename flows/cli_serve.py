"""The command `rangeline serve`: start the servers, say where they are, and stay until somebody ends it."""

import os
import signal
import time
from pathlib import Path
from types import FrameType

from flows.cli_manners import manner, say, say_object
from rangeline.errors import ConfigError
from tasks.serving import PARTS, ServePlan, serving

_LOOK_EVERY_S = 0.5
_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
_END = "Ended: nothing of it runs on."


def serve_parts(root: Path, project: Path, page: str | None, port: int | None, mlflow_port: int) -> None:
    """Serve everything, or one page of it, until Ctrl-C or SIGTERM.

    Raises
    ------
    ConfigError
        For a page that is none, a port in use, or a workspace that is served already.
    ToolError
        When a server does not start, or ends by itself.
    """
    parts = {None: PARTS, "prefect": ("prefect",), "mlflow": ("mlflow",)}.get(page)
    if parts is None:
        msg = f"'page' must be prefect, mlflow or vllm; got '{page}'. Name none to serve Prefect and MLflow at once."
        raise ConfigError(msg)
    plan = ServePlan(
        root=root.resolve(),
        project=project,
        prefect_port=port if port and page != "mlflow" else 4200,
        mlflow_port=port if port and page == "mlflow" else mlflow_port,
        parts=parts,
    )
    if named := os.environ.get("PREFECT_API_URL"):
        say(f"PREFECT_API_URL names {named}; what is served here is another server, with a worker of its own.")
    for number in _SIGNALS:
        signal.signal(number, _end)
    # A shell that starts it in the background leaves Ctrl-C's signal ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with serving(plan, say) as family:
            if manner().as_json:
                pages = {"prefect": plan.page, "mlflow": plan.mlflow}
                say_object({name: url for name, url in pages.items() if name in plan.parts})
            say(_closing(plan))
            while True:
                family.check()
                time.sleep(_LOOK_EVERY_S)
    except KeyboardInterrupt:
        say(f"\n{_END}")
    except SystemExit:
        say(_END)
        raise


def _end(number: int, frame: FrameType | None) -> None:
    """End as Ctrl-C does; once, since a second signal would break off the ending."""
    for each in _SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    raise SystemExit(128 + number)


def _closing(plan: ServePlan) -> str:
    lines = [f"Ctrl-C ends {'all of it' if len(plan.parts) > 1 else 'it'}. Logs: {plan.root / '.rangeline' / 'serve'}"]
    if "worker" in plan.parts and plan.root != plan.project:
        lines.append(f"In a form, 'workspace' is {plan.root}; '.' is {plan.project}.")
    return "\n".join(lines)
