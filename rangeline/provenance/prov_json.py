"""Export a graph as W3C PROV-JSON: files are entities, stage versions activities, the code at a commit is an agent."""

from typing import Any

from rangeline.provenance.graph import Graph, Stage

PREFIXES = {"rl": "urn:rangeline:", "prov": "http://www.w3.org/ns/prov#"}


def prov_document(graph: Graph) -> dict[str, Any]:
    """Return the PROV-JSON document of a graph.

    Notes
    -----
    PROV-JSON, W3C Member Submission 24 April 2013. Identifiers are made from digests: a path is only a label, since
    qualified names do not take every character of a path.
    """
    document: dict[str, Any] = {"prefix": dict(PREFIXES)}
    document |= {name: {} for name in ("entity", "activity", "agent", "used", "wasGeneratedBy")}
    document |= {name: {} for name in ("wasAssociatedWith", "wasInformedBy", "wasDerivedFrom")}
    name_of = {}
    for number, node in enumerate(graph.files()):
        name_of[node.key] = f"rl:file-{node.sha256[:16]}-{number}"
        document["entity"][name_of[node.key]] = {"prov:label": node.path, "rl:sha256": node.sha256}
    for stage in graph.stages.values():
        _add_activity(document, graph, stage, name_of)
    for key, model in graph.models.items():
        name = f"rl:model-{len(document['entity'])}"
        document["entity"][name] = {
            "prov:label": f"{model.name} version {model.version}",
            "rl:aliases": ", ".join(model.aliases),
        }
        for source, _ in graph.sources[key]:
            _relate(document, "wasDerivedFrom", {"prov:generatedEntity": name, "prov:usedEntity": name_of[source]})
    return {key: value for key, value in document.items() if value}


def _activity(key: str) -> str:
    return f"rl:stage-{key[:32]}"


def _add_activity(document: dict[str, Any], graph: Graph, stage: Stage, name_of: dict[str, str]) -> None:
    manifest, entry, name = stage.manifest, stage.entry, _activity(stage.key)
    activity: dict[str, Any] = {"prov:label": graph.nodes[stage.key].title, "rl:manifest": stage.path}
    if entry is not None:
        activity |= {"prov:startTime": entry.started or entry.ended, "prov:endTime": entry.ended}
        activity |= {f"rl:prefect_{key}": value for key, value in entry.prefect.items()}
        activity |= {f"rl:mlflow_{key}": value for key, value in entry.mlflow.items()}
    document["activity"][name] = activity
    commit = str(manifest.code.get("commit") or manifest.code.get("version") or "unknown")
    changed = bool(manifest.code.get("dirty"))
    agent = f"rl:code-{commit[:40]}{'-changed' if changed else ''}"
    document["agent"][agent] = {
        "prov:type": {"$": "prov:SoftwareAgent", "type": "xsd:QName"},
        "prov:label": f"rangeline {manifest.code.get('version', '')} at {commit}",
    }
    _relate(document, "wasAssociatedWith", {"prov:activity": name, "prov:agent": agent})
    for source, how in graph.sources[stage.key]:
        relation = {"prov:activity": name, "prov:entity": name_of[source], "prov:role": how}
        _relate(document, "used", relation)
    for key in graph.outputs(stage.key):
        _relate(document, "wasGeneratedBy", {"prov:entity": name_of[key], "prov:activity": name})
    for parent in manifest.parents:
        if parent.sha256 in graph.stages:
            told = {"prov:informed": name, "prov:informant": _activity(parent.sha256)}
            _relate(document, "wasInformedBy", told)


def _relate(document: dict[str, Any], kind: str, values: dict[str, Any]) -> None:
    document[kind][f"_:{kind}{len(document[kind])}"] = values
