"""Write into the ledger who made what and when: the flow run, the tracking run, the clock.

Every door goes through here, so that one lock orders the lines. A note never fails a night's work for a manifest that
is not there: it is written after the artifact, by the task that made it.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from prefect.context import FlowRunContext
from prefect.runtime import deployment, flow_run, task_run

from rangeline.lineage import artifact_ref, digest_file, read_manifest, relative_path
from rangeline.provenance.kept import keep
from rangeline.provenance.ledger import Note, append_note, ledger_path, read_ledger
from tasks.processes import file_lock

_WRITTEN_OVER = ("data/", "models/")
"""Places whose manifests the next run of the stage replaces: their bytes are kept, so that old chains can be walked."""


def utc_now() -> str:
    """Return the time as ISO 8601 in UTC, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def seconds_ago(seconds: float) -> str:
    """Return the time that many seconds ago, in the same form."""
    return (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat(timespec="milliseconds")


def note(
    root: Path,
    kind: str,
    *,
    manifest: Path | None = None,
    files: Iterable[Path] = (),
    started: str | None = None,
    mlflow_run_id: str | None = None,
    facts: Mapping[str, Any] | None = None,
) -> str:
    """Append a line to the ledger of a workspace; return its digest.

    Parameters
    ----------
    root
        Workspace.
    kind
        Word for what was made.
    manifest, files
        The manifest that closed it, and files beside it that no manifest names.
    started
        When the work began; None where only its end is known.
    mlflow_run_id
        Tracking run that shows it.
    facts
        What else is worth keeping, such as why.
    """
    refs = [artifact_ref(path, root) for path in sorted(files) if path.is_file()]
    closed = None if manifest is None else artifact_ref(manifest, root)
    if manifest is not None and closed is not None and closed.path.startswith(_WRITTEN_OVER):
        keep(root, manifest, closed.sha256, link=False)
    with file_lock(ledger_path(root).with_suffix(".lock")):
        return append_note(
            root,
            Note(
                kind=kind,
                ended=utc_now(),
                started=started,
                manifest=None if closed is None else {"path": closed.path, "sha256": closed.sha256},
                files=tuple({"path": ref.path, "sha256": ref.sha256} for ref in refs),
                prefect=prefect_ids(),
                mlflow={} if mlflow_run_id is None else {"run_id": mlflow_run_id},
                facts=facts or {},
            ),
        )


def note_stage(root: Path, manifest: Path, *, mlflow_run_id: str | None = None, copies: Iterable[Path] = ()) -> None:
    """Note a data stage and those that it builds upon, each version once, with the tracking store's `copies`."""
    noted = read_ledger(root).newest
    todo, seen = [manifest], set()
    while todo:
        path = todo.pop()
        if path in seen or not path.is_file():
            continue
        seen.add(path)
        made = read_manifest(path)
        todo += [root / ref.path for ref in made.parents]
        name, digest = relative_path(path, root), digest_file(path)
        if name not in noted or noted[name][0] != digest:
            is_own = path == manifest
            note(
                root,
                made.kind,
                manifest=path,
                files=copies if is_own else (),
                started=flow_started(),
                mlflow_run_id=mlflow_run_id if is_own else None,
            )


def prefect_ids() -> dict[str, str]:
    """Return the ids of the flow run, task run and deployment that this code runs in; none outside a flow."""
    if flow_run.id is None:
        return {}
    values = {
        "flow_run_id": flow_run.id,
        "flow_run_name": flow_run.name,
        "flow_name": flow_run.flow_name,
        "task_run_id": task_run.id,
        "deployment_id": deployment.id,
    }
    return {name: str(value) for name, value in values.items() if value}


def flow_started() -> str | None:
    """Return when the running flow began; None outside a flow."""
    context = FlowRunContext.get()
    began = None if context is None or context.flow_run is None else context.flow_run.start_time
    return None if began is None else began.astimezone(UTC).isoformat(timespec="milliseconds")
