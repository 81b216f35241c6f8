"""Walks forwards: a prompt, a row, a judge and a file reach what read them, and nothing else."""

import html.parser
import json
import re

import pyarrow.parquet as pq
import pytest

from benchmarks.lineage.make import JUDGE, make_data, make_evaluation, make_iteration, make_workspace, marker_of
from rangeline.errors import BadInputError
from rangeline.provenance.drawings import draw_json, draw_mermaid, draw_tree, mermaid_text
from rangeline.provenance.graph import ModelVersion, build_graph
from rangeline.provenance.kept import keep
from rangeline.provenance.ledger import Note, append_note, read_ledger
from rangeline.provenance.page import draw_page
from rangeline.provenance.reach import find_target, index_tables, reach
from rangeline.provenance.row_index import RowIndex


@pytest.fixture
def world(tmp_path):
    """Give a workspace: iteration 1 draws p1, iteration 2 draws p2, its policy is evaluated and is champion."""
    make_data(tmp_path)
    make_iteration(tmp_path, "r", 1, ["p1"])
    make_iteration(tmp_path, "r", 2, ["p2"])
    make_evaluation(tmp_path, "r", 2)
    return tmp_path


def versions(root):
    """Return one model version an iteration."""
    return [
        ModelVersion(
            name="policy",
            version=number,
            aliases=("champion",) if number == 2 else (),
            made_of=(marker_of(root, "r", number),),
            checkpoint=f"runs/r/checkpoints/{number:06d}",
        )
        for number in (1, 2)
    ]


def walk(root, text, models=None):
    """Return what a word reached."""
    graph, index = build_graph(root, read_ledger(root), versions(root) if models is None else models), RowIndex(root)
    unknown = index_tables(graph, index)
    return reach(graph, find_target(root, graph, index, text), index, unknown=unknown)


def titles(found, *, kinds=("stage", "model", "promotion")):
    """Return the titles of what was reached."""
    return {node.title.split(" since")[0] for kind in kinds for node in found.nodes(kind)}


FIRST, SECOND = "iteration 1 of run r", "iteration 2 of run r"
EVALUATION = "evaluation of runs/r/checkpoints/000002"
MODELS = {"model policy version 1", "model policy version 2 (champion)"}


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("c1", {"prompts", "pools", "calibration", FIRST, SECOND, EVALUATION} | MODELS),
        ("p1", {"prompts", "pools", FIRST, SECOND, EVALUATION} | MODELS),
        ("p2", {"prompts", "pools", SECOND, EVALUATION, "model policy version 2 (champion)"}),
        ("p3", {"prompts", "pools"}),
        ("e1", {"prompts", "pools", EVALUATION}),
        ("dropped", {"prompts"}),
    ],
)
def test_a_prompt_reaches_what_its_rows_went_into(world, prompt, expected):
    """A prompt reaches the stages whose tables hold it and all that was made from those; one never drawn, no model."""
    assert expected == titles(walk(world, prompt))


def test_a_stage_without_tables_is_reached_by_every_row_that_it_read(world):
    """Warm-up leaves no table that tells rows apart, so each of its prompts reaches all that was made from it."""
    assert {"warmup", "calibration", FIRST, SECOND} | MODELS <= titles(walk(world, "w1"))


def test_a_calibration_row_is_its_prompt_with_its_truth(world):
    """A row is named by its number from 1, and reaches what its prompt does; a number beyond is refused."""
    row, prompt = walk(world, "calibration:2"), walk(world, "prompt:c2")
    assert titles(prompt) == titles(row)
    assert "calibration row 2 (prompt c2, answer '2', truth 0.0)" == row.target.title
    with pytest.raises(BadInputError, match="1 to 2; got 3"):
        walk(world, "calibration:3")


@pytest.mark.parametrize("name", [JUDGE["digest"][:12], "judge:judge-model", JUDGE["rubric_sha256"][:8]])
def test_a_judge_reaches_what_it_judged(world, name):
    """A judge by model, digest or rubric reaches calibration, iterations, evaluations and models, and no pool."""
    assert {"calibration", FIRST, SECOND, EVALUATION} | MODELS == titles(walk(world, name))


def test_a_file_reaches_its_readers(world):
    """A file reaches what read it: the first iteration's table the second iteration, not the first."""
    assert {SECOND, EVALUATION, "model policy version 2 (champion)"} == titles(
        walk(world, "runs/r/iterations/000001/policy_0.parquet")
    )
    assert ["runs/r/checkpoints/000002"] == walk(world, "runs/r/iterations/000001/policy_0.parquet").checkpoints


def test_a_promotion_is_reached_through_the_evaluation_that_decided_it(world):
    """A withdrawn evaluation label reaches the promotion that it decided, though no weights."""
    evaluation = world / "runs" / "_evaluations" / "r-2" / "manifest.json"
    digest = read_ledger(world).newest[evaluation.relative_to(world).as_posix()][0]
    facts = {"model": "policy", "version": 2, "alias": "champion", "decided_by": [digest]}
    append_note(world, Note(kind="promotion", ended="2026-02-01", facts=facts))
    found = walk(world, "e1")
    assert ["champion since 2026-02-01: policy version 2"] == [node.title for node in found.nodes("promotion")]
    assert [] == found.models


def test_the_past_is_reached_through_kept_manifests(world):
    """After new data replaced the pools, a prompt still reaches the run that was trained on the old ones."""
    for name in ("data/prompts", "data/pools", "models/warmup", "data/calibration"):
        path = world / name / "manifest.json"
        keep(world, path, read_ledger(world).newest[f"{name}/manifest.json"][0], link=False)
    index_tables(build_graph(world, read_ledger(world)), RowIndex(world))
    make_data(world, more=["p9"])
    found = walk(world, "c1")
    assert {FIRST, SECOND, EVALUATION} | MODELS <= titles(found)
    assert MODELS.isdisjoint(titles(walk(world, "p9")))
    assert 2 == len([node for node in found.nodes("stage") if node.title == "pools"])


def test_tables_that_are_gone_are_taken_to_hold_the_prompt(world):
    """A table whose bytes are gone before they were indexed counts as holding the prompt, and is named."""
    (world / "runs/r/iterations/000002/policy_0.parquet").unlink()
    found = walk(world, "p3")
    assert SECOND in titles(found)
    assert ("runs/r/iterations/000002/policy_0.parquet",) == found.unknown


def test_unknown_words_are_refused_with_what_comes_near(world):
    """A word that names nothing is refused, and ids that begin alike are told."""
    with pytest.raises(BadInputError, match=r"'dropt' must be a prompt id.*begin alike: dropped"):
        walk(world, "dropt")


def test_every_node_and_edge_is_looked_at_once(tmp_path, monkeypatch):
    """The walk touches each edge at most once, so its work grows with the graph and not faster."""
    make_workspace(tmp_path, iterations=12)
    graph, index = build_graph(tmp_path, read_ledger(tmp_path)), RowIndex(tmp_path)
    index_tables(graph, index)
    looked = []

    class Counting(dict):
        def __getitem__(self, key):
            looked.append(key)
            return super().__getitem__(key)

    edges = sum(map(len, graph.readers.values()))
    monkeypatch.setattr(graph, "readers", Counting({key: list(graph.readers[key]) for key in graph.nodes}))
    found = reach(graph, find_target(tmp_path, graph, index, "data/raw/rows.jsonl"), index)
    assert len(looked) == len(set(looked)) <= len(graph.nodes)
    assert len(found.steps) == len(set(found.steps))
    assert edges < 40 * 12 + 60


def test_the_tree_names_run_iterations_and_models(world):
    """The tree gives iterations of a run in one line, and the models below it."""
    text = "\n".join(draw_tree(walk(world, "calibration:1")))
    assert "run r: iterations 1-2" in text
    assert "model policy version 2 (champion)" in text
    assert "2 iterations, 2 checkpoints" in text


def test_json_tells_each_step(world):
    """The JSON names every stage with how it was reached and by whom it was made."""
    value = json.loads(json.dumps(draw_json(walk(world, "c1"))))
    calibration = next(stage for stage in value["stages"] if stage["kind"] == "calibration")
    assert ("read", "run-of-calibration") == (calibration["how"], calibration["mlflow"]["run_id"])
    assert [{"name": "policy", "version": 2, "aliases": ["champion"]}] == value["models"][1:]


HOSTILE = '"]; click x "javascript:alert(1)" <script>alert(1)</script> </script><!-- %%{init}%% \u202e'


def test_mermaid_labels_cannot_leave_their_quotes(world):
    """Whatever a name holds, the label keeps letters, digits and codes alone."""
    assert re.fullmatch(r"[A-Za-z0-9 ._/#;-]*", mermaid_text(HOSTILE))
    chart = draw_mermaid(walk(world, "c1"))
    assert chart.startswith("flowchart LR\n")
    assert all(line.count('"') == 2 for line in chart.splitlines() if "[" in line)


class Page(html.parser.HTMLParser):
    """Collects the elements of a page, its scripts and their kinds."""

    def __init__(self):
        super().__init__()
        self.tags, self.addresses, self.text, self.open = [], [], {}, None

    def handle_starttag(self, tag, attrs):
        """Note an element."""
        self.tags.append(tag)
        self.addresses += [value for name, value in attrs if name in ("src", "href", "action")]
        self.open = (tag, dict(attrs).get("type"))

    def handle_data(self, data):
        """Note the text of an element."""
        self.text.setdefault(self.open, []).append(data)


def test_the_page_is_one_file_whose_names_cannot_run(world):
    """The page asks for nothing outside itself, and a hostile title adds no element and ends no script."""
    found = walk(world, "c1")
    plain = Page()
    plain.feed(draw_page(found))
    hostile = Page()
    found.target = type(found.target)(title=HOSTILE, start=found.target.start, prompt_id=found.target.prompt_id)
    key = next(iter(found.graph.models))
    node = found.graph.nodes[key]
    found.graph.nodes[key] = type(node)(node.key, node.kind, HOSTILE, HOSTILE, node.sha256)
    page = draw_page(found)
    hostile.feed(page)
    assert (plain.tags, []) == (hostile.tags, hostile.addresses)
    data = json.loads("".join(hostile.text["script", "application/json"]))
    assert HOSTILE in {node["t"] for node in data["nodes"]}
    assert re.findall(r"https?://", page) == []
    assert len(data["nodes"]) == len([n for n in found.graph.nodes.values() if n.kind != "file"])


def test_index_is_made_again_where_it_was_deleted(world):
    """Deleting the index loses nothing but time."""
    before = titles(walk(world, "p2"))
    RowIndex(world)._path.unlink()
    assert before == titles(walk(world, "p2"))


def test_index_takes_a_table_in_once(world, monkeypatch):
    """A table that was taken in is not read again."""
    index_tables(build_graph(world, read_ledger(world)), RowIndex(world))

    def refuse(*_, **__):
        raise AssertionError

    monkeypatch.setattr(pq, "read_table", refuse)
    assert () == index_tables(build_graph(world, read_ledger(world)), RowIndex(world))
