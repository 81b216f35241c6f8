"""Ingest of benchmarks and its findings: from settings to files."""

import json

import pytest

from rangeline.config import build_config
from rangeline.errors import ConfigError, DataContractError
from rangeline.lineage import MANIFEST_NAME, read_manifest
from rangeline.stages.data import ingest, read_prompts
from rangeline.stages.workspace import Workspace

REGISTRY = """
sums: {suite: competition_math, source: "file:sums.jsonl", columns: {question: problem, answer: answer}, licence: MIT}
"""


@pytest.fixture
def workspace(tmp_path):
    """Give a workspace with a registry of its own and one benchmark file."""
    workspace = Workspace(tmp_path / "w")
    workspace.root.mkdir(parents=True)
    (workspace.root / "more.yaml").write_text(REGISTRY)
    records = [
        {"problem": "1+1?", "answer": "2"},
        {"problem": "1 + 1", "answer": "2"},
        {"problem": "Half of 1?", "answer": r"\frac12"},
        {"problem": "What?", "answer": r"\foo{1}"},
        {"problem": "A long one " * 20, "answer": "3"},
        {"problem": "Blank?", "answer": ""},
    ]
    (workspace.root / "sums.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return workspace


def _config(benchmark=None, **data):
    asked = {"name": "sums"} | (benchmark or {})
    return build_config({"data": {"benchmarks": [asked], "registry": "more.yaml"} | data}, source="test")


def test_benchmark_is_ingested_and_its_summary_recorded(workspace):
    """Rows, repeats, unusable records, source and licence are in the manifest; unreadable references are dropped."""
    ingest(workspace, _config())
    rows = read_prompts(workspace.prompts / "prompts.parquet")
    assert ["2", r"\frac12", "3"] == [row.reference for row in rows]
    facts = read_manifest(workspace.prompts / MANIFEST_NAME).facts
    (summary,) = facts["benchmarks"]
    assert (4, 1, "MIT") == (summary["rows"], summary["repeats"], summary["licence"])
    assert [{"row": 6, "reason": "answer is blank"}] == summary["unusable"]
    assert {"unreadable reference": 1} == facts["findings"]
    (finding,) = json.loads((workspace.prompts / "findings.json").read_text())
    assert "suite 'competition_math' cannot read it" == finding["reason"]


def test_unreadable_references_are_kept_or_refused_when_asked(workspace):
    """The setting decides."""
    ingest(workspace, _config(unreadable_references="keep"))
    assert 4 == len(read_prompts(workspace.prompts / "prompts.parquet"))
    with pytest.raises(DataContractError, match=r"no unreadable reference; got 1 .*data.unreadable_references"):
        ingest(workspace, _config(unreadable_references="refuse"))


def test_long_prompts_are_measured_on_the_ids_that_are_sent(workspace, tiny_model_folder):
    """The policy's own tokenizer and template count, so the instruction of the suite counts, too."""
    ingest(workspace, _long(tiny_model_folder, 200))
    assert ["2", r"\frac12"] == [row.reference for row in read_prompts(workspace.prompts / "prompts.parquet")]
    (_, long) = json.loads((workspace.prompts / "findings.json").read_text())
    assert "long prompt" == long["kind"]
    with pytest.raises(DataContractError, match="no long prompt; got "):
        ingest(workspace, _long(tiny_model_folder, 10, long_prompts="refuse"))


def _long(model, limit, **data):
    data = {"benchmarks": [{"name": "sums"}], "registry": "more.yaml", "max_prompt_tokens": limit} | data
    return build_config({"data": data, "policy": {"model": str(model)}}, source="test")


def test_limit_label_domain_and_override_are_obeyed(workspace):
    """A benchmark may be cut, stripped of its references, renamed, and read from elsewhere."""
    (workspace.root / "other.jsonl").write_text(json.dumps({"q": "5+5?", "answer": "10"}) + "\n")
    columns = {"question": "q", "answer": "answer"}
    asked = {
        "share": "train",
        "labelled": False,
        "domain": "mine",
        "override": {"source": "file:other.jsonl", "columns": columns},
    }
    ingest(workspace, _config(asked))
    (row,) = read_prompts(workspace.prompts / "prompts.parquet")
    assert ("5+5?", None, "mine", "train") == (row.prompt, row.reference, row.domain, row.share)
    ingest(workspace, _config({"limit": 1}))
    assert 1 == len(read_prompts(workspace.prompts / "prompts.parquet"))


@pytest.mark.parametrize(
    ("benchmark", "data", "match"),
    [
        ({"name": "sumz"}, {}, "'data.benchmarks' must be among .*sums.*; got 'sumz'"),
        ({"labelled": False}, {}, "'share' must be train where 'labelled' is false; got 'evaluation'"),
        ({"override": {"colour": 1}}, {}, "'colour' must be one of"),
        ({}, {"registry": "absent.yaml"}, "'data.registry' must be a readable text file"),
    ],
)
def test_unusable_settings_are_refused(workspace, benchmark, data, match):
    """Names, labels, overrides and registries are checked."""
    with pytest.raises(ConfigError, match=match):
        ingest(workspace, _config(benchmark, **data))
