"""Export a workspace's history as OpenLineage events: a START and a COMPLETE event of each stage version.

Data sets are files by workspace path, versions their sha256; a job is a kind of stage. A run's id is made from its
manifest's digest, so that exporting again gives the same events. What OpenLineage has no facet for (seeds, judge,
environment) stands in a facet of our own.
"""

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rangeline import __version__
from rangeline.provenance.graph import Graph, Stage
from rangeline.records import ArtifactRef

PRODUCER = f"urn:rangeline:{__version__}"
EVENT_SCHEMA = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
_FACETS = "https://openlineage.io/spec/facets"
_OWN_FACET = "urn:rangeline:facet:stage"
_RUNS = uuid.UUID("6f8b1f0e-6b0c-5b60-9c64-6a2d5a2d7f11")
"""Name space of run ids."""


def openlineage_events(root: Path, graph: Graph, *, namespace: str = "rangeline") -> Iterator[dict[str, Any]]:
    """Yield the events of every stage version, in the order of their ends.

    Parameters
    ----------
    root
        Workspace; a stage that the ledger does not know has the time of its manifest's file.
    graph
        From `build_graph`.
    namespace
        Of jobs and data sets, such as the workspace's address.
    """
    timed = [(*_times(root, stage), stage) for stage in graph.stages.values()]
    for started, ended, stage in sorted(timed, key=lambda item: (item[1], item[2].path)):
        for kind, time in (("START", started), ("COMPLETE", ended)):
            yield _event(stage, kind, time, namespace)


def _times(root: Path, stage: Stage) -> tuple[str, str]:
    if stage.entry is not None:
        started, ended = stage.entry.started or stage.entry.ended, stage.entry.ended
        # A clock that was set back while the stage was made: no event is complete before it starts.
        return min(started, ended), ended
    place = root / stage.path
    seconds = place.stat().st_mtime if place.is_file() else 0.0
    time = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    return time, time


def run_id(stage: Stage) -> str:
    """Return the id of the run that made a stage version."""
    return str(uuid.uuid5(_RUNS, stage.key))


def _event(stage: Stage, kind: str, time: str, namespace: str) -> dict[str, Any]:
    return {
        "eventType": kind,
        "eventTime": time,
        "producer": PRODUCER,
        "schemaURL": EVENT_SCHEMA,
        "run": {"runId": run_id(stage), "facets": _run_facets(stage, namespace)},
        "job": {
            "namespace": namespace,
            "name": stage.manifest.kind,
            "facets": {
                "jobType": _facet(
                    "2-0-3/JobTypeJobFacet", processingType="BATCH", integration="RANGELINE", jobType="STAGE"
                )
            },
        },
        "inputs": [_dataset(ref, namespace) for ref in stage.manifest.inputs],
        "outputs": [] if kind == "START" else [_output(ref, namespace) for ref in stage.manifest.outputs],
    }


def _facet(name: str, **values: Any) -> dict[str, Any]:
    title = name.rpartition("/")[2]
    return {"_producer": PRODUCER, "_schemaURL": f"{_FACETS}/{name}.json#/$defs/{title}", **values}


def _run_facets(stage: Stage, namespace: str) -> dict[str, Any]:
    manifest, entry = stage.manifest, stage.entry
    own: dict[str, Any] = {
        "_producer": PRODUCER,
        "_schemaURL": _OWN_FACET,
        "manifest": {"path": stage.path, "sha256": stage.key},
        "parents": [{"path": ref.path, "sha256": ref.sha256} for ref in manifest.parents],
        "code": dict(manifest.code),
        "environment": dict(manifest.environment),
        "seed": manifest.parameters.get("seed"),
        "judge": manifest.facts.get("judge"),
        "mlflow": dict(entry.mlflow) if entry else {},
    }
    facets = {"rangeline_stage": own}
    if entry is not None and "flow_run_id" in entry.prefect:
        job = {"namespace": namespace, "name": entry.prefect.get("flow_name", "flow")}
        facets["parent"] = _facet("1-0-1/ParentRunFacet", run={"runId": entry.prefect["flow_run_id"]}, job=job)
    return facets


def _dataset(ref: ArtifactRef, namespace: str) -> dict[str, Any]:
    version = _facet("1-0-1/DatasetVersionDatasetFacet", datasetVersion=ref.sha256)
    return {"namespace": namespace, "name": ref.path, "facets": {"version": version}}


def _output(ref: ArtifactRef, namespace: str) -> dict[str, Any]:
    if ref.rows is None:
        return _dataset(ref, namespace)
    statistics = _facet("1-0-2/OutputStatisticsOutputDatasetFacet", rowCount=ref.rows, size=ref.size)
    return {**_dataset(ref, namespace), "outputFacets": {"outputStatistics": statistics}}
