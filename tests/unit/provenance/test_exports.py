"""Exports: each has the shape that its format asks for, and names what it relates."""

import json
import re
import uuid
from datetime import datetime

import jsonschema
import pytest

from benchmarks.lineage.make import make_data, make_evaluation, make_iteration, marker_of
from rangeline.lineage import digest_file
from rangeline.provenance.croissant import CONFORMS_TO, croissant_dataset
from rangeline.provenance.graph import ModelVersion, build_graph
from rangeline.provenance.ledger import Note, append_note, ledger_path, read_ledger
from rangeline.provenance.openlineage import openlineage_events
from rangeline.provenance.prov_json import prov_document

FACETS = {
    "type": "object",
    "additionalProperties": {
        "type": "object",
        "required": ["_producer", "_schemaURL"],
        "properties": {"_producer": {"format": "uri"}, "_schemaURL": {"format": "uri"}},
    },
}
DATASET = {
    "type": "object",
    "required": ["namespace", "name"],
    "properties": {
        "namespace": {"type": "string"},
        "name": {"type": "string"},
        "facets": FACETS,
        "inputFacets": FACETS,
        "outputFacets": FACETS,
    },
}
RUN_EVENT = {
    "type": "object",
    "required": ["eventTime", "producer", "schemaURL", "run", "job"],
    "properties": {
        "eventType": {"enum": ["START", "RUNNING", "COMPLETE", "ABORT", "FAIL", "OTHER"]},
        "eventTime": {"type": "string", "format": "date-time"},
        "producer": {"type": "string", "format": "uri"},
        "schemaURL": {"type": "string", "format": "uri"},
        "run": {
            "type": "object",
            "required": ["runId"],
            "properties": {"runId": {"type": "string", "format": "uuid"}, "facets": FACETS},
        },
        "job": {"type": "object", "required": ["namespace", "name"], "properties": {"facets": FACETS}},
        "inputs": {"type": "array", "items": DATASET},
        "outputs": {"type": "array", "items": DATASET},
    },
}
"""What OpenLineage asks of a run event, in our own words: its required fields, their types and formats."""
RELATIONS = {
    "used": ("prov:activity", "prov:entity"),
    "wasGeneratedBy": ("prov:entity", "prov:activity"),
    "wasAssociatedWith": ("prov:activity", "prov:agent"),
    "wasInformedBy": ("prov:informed", "prov:informant"),
    "wasDerivedFrom": ("prov:generatedEntity", "prov:usedEntity"),
}


@pytest.fixture
def root(tmp_path):
    """Give a workspace with a run of two iterations and an evaluation."""
    make_data(tmp_path)
    for number in (1, 2):
        make_iteration(tmp_path, "r", number, ["p1"])
    make_evaluation(tmp_path, "r", 2)
    return tmp_path


def graph_of(root):
    """Return the graph with one model version."""
    made_of, checkpoint = (marker_of(root, "r", 2),), "runs/r/checkpoints/000002"
    model = ModelVersion(name="policy", version=1, aliases=("champion",), made_of=made_of, checkpoint=checkpoint)
    return build_graph(root, read_ledger(root), [model])


def test_events_have_the_shape_of_run_events(root):
    """Each event has the required fields with their types; dates, ids and addresses are of their formats."""
    events = list(openlineage_events(root, graph_of(root)))
    checker = jsonschema.FormatChecker()
    for event in json.loads(json.dumps(events)):
        jsonschema.validate(event, RUN_EVENT, format_checker=checker)
        assert datetime.fromisoformat(event["eventTime"]).tzinfo is not None
        uuid.UUID(event["run"]["runId"])
        assert re.match(r"^[a-z]+:", event["producer"])


def test_each_run_starts_and_completes_once(root):
    """Every stage version gives a START and a COMPLETE event under one id, and exporting again gives the same."""
    events = list(openlineage_events(root, graph_of(root)))
    kinds = {}
    for event in events:
        kinds.setdefault(event["run"]["runId"], []).append(event["eventType"])
    assert {("START", "COMPLETE")} == {tuple(found) for found in kinds.values()}
    assert len(kinds) == len(graph_of(root).stages)
    assert events == list(openlineage_events(root, graph_of(root)))


def test_no_event_is_complete_before_it_starts(root):
    """Also where the clock was set back while a stage was made."""
    manifest = root / "data" / "pools" / "manifest.json"
    ended, started = "2026-01-01T09:00:00.000+00:00", "2026-01-01T10:00:00.000+00:00"
    closed = {"path": "data/pools/manifest.json", "sha256": digest_file(manifest)}
    append_note(root, Note(kind="pools", started=started, ended=ended, manifest=closed))
    times = {}
    for event in openlineage_events(root, graph_of(root)):
        times.setdefault(event["run"]["runId"], []).append(event["eventTime"])
    assert all(start <= end for start, end in times.values())
    assert [ended, ended] in times.values()


def test_events_join_by_data_set_name_and_version(root):
    """What one stage gives as output another takes as input, by name and version."""
    events = [event for event in openlineage_events(root, graph_of(root)) if event["eventType"] == "COMPLETE"]
    made = {(d["name"], d["facets"]["version"]["datasetVersion"]) for event in events for d in event["outputs"]}
    read = {(d["name"], d["facets"]["version"]["datasetVersion"]) for event in events for d in event["inputs"]}
    assert {"data/raw/rows.jsonl"} == {name for name, _ in read - made}


def test_a_stage_without_ledger_has_the_time_of_its_file(root):
    """Where no flow wrote a ledger, events still have times."""
    ledger_path(root).unlink()
    assert all(event["eventTime"].startswith("20") for event in openlineage_events(root, graph_of(root)))


def test_every_prov_relation_names_declared_things(root):
    """Relations of the PROV document join entities, activities and agents that it declares, by declared prefixes."""
    document = json.loads(json.dumps(prov_document(graph_of(root))))
    declared = document["entity"].keys() | document["activity"].keys() | document["agent"].keys()
    for kind, ends in RELATIONS.items():
        assert document[kind], kind
        for values in document[kind].values():
            assert {values[end] for end in ends} <= declared
    names = [name for kind in ("entity", "activity", "agent") for name in document[kind]]
    assert all(re.fullmatch(r"rl:[A-Za-z0-9._-]+", name) for name in names)
    assert {"rl", "prov"} == set(document["prefix"])
    assert len(names) == len(set(names))


def test_croissant_describes_files_and_columns(root):
    """The data set names each file by its digest, and each column by the file that it is read from."""
    value = json.loads(json.dumps(croissant_dataset(root, root / "data" / "pools")))
    assert ("sc:Dataset", CONFORMS_TO) == (value["@type"], value["conformsTo"])
    files = {item["@id"]: item for item in value["distribution"]}
    for name, item in files.items():
        assert ("cr:FileObject", digest_file(root / name)) == (item["@type"], item["sha256"])
        assert {"name", "contentUrl", "encodingFormat"} <= item.keys()
    fields = [field for record in value["recordSet"] for field in record["field"]]
    assert {"prompt_id"} == {field["name"] for field in fields}
    assert all(field["source"]["fileObject"]["@id"] in files for field in fields)
    assert len({field["@id"] for field in fields}) == len(fields)
