"""Data stages: manifests that tell the truth, pools that stay, and rows that are refused by name."""

import json

import pytest

from rangeline.config import build_config
from rangeline.errors import ConfigError, DataContractError, PoolError, ReferenceCheckError
from rangeline.lineage import MANIFEST_NAME, digest_file, read_manifest
from rangeline.prompts.pools import LABELLED_POOLS, POOLS, UNLABELLED_POOLS
from rangeline.stages.data import (
    generate,
    ingest,
    pool_counts,
    pool_table,
    read_pool,
    read_prompts,
    split,
    write_prompts,
)
from rangeline.stages.tables import read_table
from rangeline.stages.workspace import Workspace


def _row(number, *, labelled, **over):
    row = {
        "prompt_id": f"{'l' if labelled else 'u'}{number}",
        "prompt": f"{number} + {1000 + number}",
        "suite": "reasoning_gym",
        "reference": str(1000 + 2 * number) if labelled else None,
    }
    return row | over


def _rows(num_labelled=60, num_unlabelled=30, start=0):
    labelled = [_row(start + i, labelled=True) for i in range(num_labelled)]
    return labelled + [_row(start + 500 + i, labelled=False) for i in range(num_unlabelled)]


@pytest.fixture
def workspace(tmp_path):
    """Give an empty workspace."""
    return Workspace(tmp_path / "w")


def _put(workspace, rows, name="rows.jsonl"):
    workspace.raw.mkdir(parents=True, exist_ok=True)
    (workspace.raw / name).write_text("".join(json.dumps(row) + "\n" for row in rows))


def _config(*files, **over):
    return build_config({"data": {"files": list(files or ["data/raw/rows.jsonl"])}, **over}, source="test")


def _ingest(workspace, rows, **over):
    _put(workspace, rows)
    ingest(workspace, _config(**over))


def _split(workspace, rows, **over):
    _ingest(workspace, rows, **over)
    split(workspace, _config(**over))
    return {row.prompt_id: pool for pool in POOLS for row in read_pool(workspace, pool)}


def _bytes(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_generate_without_generators_makes_an_empty_table(workspace):
    """No generator means no problem; file and manifest are there and agree."""
    generate(workspace, _config())
    (ref,) = read_manifest(workspace.generated / MANIFEST_NAME).outputs
    assert (0, 0, "") == (ref.rows, ref.size, (workspace.generated / "problems.jsonl").read_text())


def test_ingest_keeps_every_good_row(workspace):
    """Rows come out as they went in, in order, and the manifest's counts are those of the file."""
    rows = _rows(6, 3)
    _ingest(workspace, rows)
    kept = read_prompts(workspace.prompts / "prompts.parquet")
    assert [(row["prompt_id"], row["prompt"], row["reference"]) for row in rows] == [
        (row.prompt_id, row.prompt, row.reference) for row in kept
    ]
    facts = read_manifest(workspace.prompts / MANIFEST_NAME).facts
    assert (6, 3, 0, 1.0) == tuple(
        facts[name] for name in ("labelled", "unlabelled", "rejected", "reference_share_right")
    )


@pytest.mark.parametrize("stage", ["prompts", "pools"])
def test_manifest_agrees_with_its_files(workspace, stage):
    """Rows and hashes of every output of a manifest are those of the file."""
    _split(workspace, _rows())
    for ref in read_manifest(getattr(workspace, stage) / MANIFEST_NAME).outputs:
        path = workspace.root / ref.path
        num = read_table(path).num_rows if path.suffix == ".parquet" else len(json.loads(path.read_text()))
        assert (digest_file(path), path.stat().st_size, num) == (ref.sha256, ref.size, ref.rows)


def test_unlabelled_reference_is_null(workspace):
    """An unlabelled prompt has a null reference in the file, never a blank text."""
    _ingest(workspace, _rows(1, 1))
    assert ["1000", None] == read_table(workspace.prompts / "prompts.parquet")["reference"].to_pylist()


def test_files_of_a_workspace_come_together(workspace):
    """Rows of several files are one set of prompts, and each file is an input of the manifest."""
    _put(workspace, _rows(3, 0), "a.jsonl")
    _put(workspace, _rows(0, 2), "b.jsonl")
    ingest(workspace, _config("data/raw/a.jsonl", "data/raw/b.jsonl"))
    manifest = read_manifest(workspace.prompts / MANIFEST_NAME)
    assert ["data/raw/a.jsonl", "data/raw/b.jsonl"] == [ref.path for ref in manifest.inputs]
    assert 5 == len(read_prompts(workspace.prompts / "prompts.parquet"))


def test_few_wrong_references_are_rejected_by_name(workspace):
    """Below the floor wrong references are left out, listed with their reason, and counted."""
    rows = [*_rows(9, 2), _row(99, labelled=True, reference="none")]
    _ingest(workspace, rows, data={"files": ["data/raw/rows.jsonl"], "reference_floor": 0.9})
    (rejected,) = json.loads((workspace.prompts / "rejected.json").read_text())
    assert ("l99", True) == (rejected["prompt_id"], bool(rejected["reason"]))
    assert "l99" not in {row.prompt_id for row in read_prompts(workspace.prompts / "prompts.parquet")}
    assert read_manifest(workspace.prompts / MANIFEST_NAME).facts["rejected"] == 1


def test_too_many_wrong_references_stop_the_stage(workspace):
    """References that do not score right against themselves are an error that names each prompt and reference."""
    rows = [*_rows(9, 2), _row(99, labelled=True, reference="none")]
    with pytest.raises(ReferenceCheckError, match=r"got 90\.0%, 1 of 10 wrong \('l99': 'none'"):
        _ingest(workspace, rows)
    assert not workspace.prompts.exists()


@pytest.mark.parametrize(
    ("over", "message"),
    [
        ({"prompt": "  "}, r"'prompt' must be a non-blank string.*; got '  ' \(rows\.jsonl, row 4\)"),
        ({"prompt_id": "l0"}, r"'prompt_id' must be unique \(row 1 has it too\); got 'l0' \(rows\.jsonl, row 4\)"),
        ({"reference": ""}, r"'reference' must be a non-blank string.*; got '' \(rows\.jsonl, row 4\)"),
        ({"refrence": "3"}, r"'refrence' must be one of.*did you mean 'reference'.*\(rows\.jsonl, row 4\)"),
        ({"share": "test"}, r"'share' must be one of train, policy, ratio, .*; got 'test' \(rows\.jsonl, row 4\)"),
    ],
)
def test_bad_row_is_named_by_file_row_and_field(workspace, over, message):
    """A row that breaks the contract stops the stage, named by file, row and field; nothing is written."""
    with pytest.raises(DataContractError, match=message):
        _ingest(workspace, [*_rows(3, 0), _row(7, labelled=True, **over)])
    assert not workspace.prompts.exists()


def test_id_in_two_files_is_refused(workspace):
    """A prompt id that occurs in two files is refused, although each file is sound."""
    _put(workspace, _rows(2, 0), "a.jsonl")
    _put(workspace, [_row(50, labelled=True, prompt_id="l1")], "b.jsonl")
    with pytest.raises(DataContractError, match=r"'prompt_id' must be unique; got 'l1' in 2 rows"):
        ingest(workspace, _config("data/raw/a.jsonl", "data/raw/b.jsonl"))


def test_unknown_suite_is_refused(workspace):
    """A suite that does not exist is refused by name, with those that do."""
    with pytest.raises(ConfigError, match=r"'suite' must be .*got 'reasoning_gim'"):
        _ingest(workspace, [_row(1, labelled=True, suite="reasoning_gim")])


@pytest.mark.parametrize(
    "name", ["rows.jsonl", "data/rows.jsonl", "../rows.jsonl", "/etc/hostname", "data/raw/../rows.jsonl"]
)
def test_file_outside_raw_is_refused(workspace, name):
    """A data file outside data/raw is refused, since DVC would not see it change."""
    workspace.raw.mkdir(parents=True)
    with pytest.raises(ConfigError, match=rf"'data\.files' must lie in '.*raw'; got '{name}'"):
        ingest(workspace, _config(name))


def test_link_out_of_raw_is_refused(workspace, tmp_path):
    """A link in data/raw that leads elsewhere is outside."""
    workspace.raw.mkdir(parents=True)
    (tmp_path / "rows.jsonl").write_text(json.dumps(_row(1, labelled=True)))
    (workspace.raw / "rows.jsonl").symlink_to(tmp_path / "rows.jsonl")
    with pytest.raises(ConfigError, match=r"'data\.files' must lie in"):
        ingest(workspace, _config())


def test_absent_file_is_named(workspace):
    """A data file that is not there is named."""
    workspace.raw.mkdir(parents=True)
    with pytest.raises(DataContractError, match=r"rows\.jsonl' must be a file that exists"):
        ingest(workspace, _config())


def test_no_source_is_refused(workspace):
    """Neither generators nor files is no data."""
    with pytest.raises(ConfigError, match="'data' must name generators, files or a world; got none"):
        ingest(workspace, build_config({}, source="test"))


def test_every_prompt_is_in_one_pool(workspace):
    """Each prompt is in one pool of its kind, or excluded with a reason; counts say the same."""
    rows = _rows()
    pool_of = _split(workspace, rows)
    excluded = json.loads((workspace.pools / "excluded.json").read_text())
    assert {row["prompt_id"] for row in rows} == set(pool_of) | {item["prompt_id"] for item in excluded}
    assert len(rows) == len(pool_of) + len(excluded)
    for prompt_id, pool in pool_of.items():
        assert pool in (LABELLED_POOLS if prompt_id.startswith("l") else UNLABELLED_POOLS)
    counts = {pool: len(read_pool(workspace, pool)) for pool in POOLS}
    assert counts == pool_counts(workspace)


def test_manifest_proves_disjointness(workspace):
    """The manifest counts what each pair of pools has in common: nothing."""
    _split(workspace, _rows())
    proof = read_manifest(workspace.pools / MANIFEST_NAME).facts["proof"]
    assert (21, {0}) == (len(proof), {value for pair in proof.values() for value in pair.values()})


def test_reserved_rows_go_where_their_owner_said(workspace):
    """Rows marked audit and evaluation are in those pools."""
    rows = [_row(i, labelled=True, share=share) for i, share in ((800, "audit"), (801, "evaluation"))]
    pool_of = _split(workspace, _rows() + rows)
    assert ("audit", "evaluation") == (pool_of["l800"], pool_of["l801"])


def test_splitting_twice_is_the_same(workspace):
    """The stage run again, and run afresh, gives the same bytes."""
    _split(workspace, _rows())
    first = _bytes(workspace.pools)
    split(workspace, _config())
    assert first == _bytes(workspace.pools)
    for path in workspace.pools.iterdir():
        path.unlink()
    split(workspace, _config())
    assert first == _bytes(workspace.pools)


def test_order_of_rows_does_not_count(workspace):
    """Pools do not depend on the order of rows in the file."""
    first = _split(workspace, _rows())
    assert first == _split(workspace, _rows()[::-1])


def test_new_rows_move_nobody(workspace):
    """With rows added, near duplicates of old ones among them, every old prompt is where it was."""
    before = _split(workspace, _rows())
    twins = [_row(i, labelled=True, prompt_id=f"t{i}", prompt=f"{i} + {1000 + i} ") for i in range(5)]
    after = _split(workspace, _rows() + _rows(40, 40, start=2000) + twins)
    assert before == {prompt_id: pool for prompt_id, pool in after.items() if prompt_id in before}
    assert len(after) > len(before)
    assert [before[f"l{i}"] for i in range(5)] == [after[f"t{i}"] for i in range(5)]


def test_removed_rows_move_nobody(workspace):
    """With rows taken away, the others are where they were."""
    before = _split(workspace, _rows())
    after = _split(workspace, _rows(40, 20))
    assert after == {prompt_id: before[prompt_id] for prompt_id in after}


def test_another_key_is_another_split(workspace):
    """Another key splits anew; earlier places do not bind it."""
    before = _split(workspace, _rows())
    assert before != _split(workspace, _rows(), split={"key": "other"})


@pytest.mark.parametrize("rows", [_rows(60, 0), _rows(0, 30), _rows(2, 2)])
def test_too_few_prompts_are_refused_whole(workspace, rows):
    """Too few prompts for the pools are an error that names the pool; no half-written pools appear."""
    _ingest(workspace, rows)
    with pytest.raises(PoolError, match=r"pool must hold at least one prompt; got 0 \(drawn from \d+ "):
        split(workspace, _config())
    assert not workspace.pools.exists()


def test_failed_split_leaves_the_old_pools(workspace):
    """When new data are too few, the pools that were there stay byte for byte."""
    _split(workspace, _rows())
    before = _bytes(workspace.pools)
    _ingest(workspace, _rows(2, 2, start=4000))
    with pytest.raises(PoolError, match="pool must hold at least one prompt"):
        split(workspace, _config())
    assert before == _bytes(workspace.pools)


def test_pool_that_was_not_made_is_named(workspace):
    """Reading a pool before it is made says what to run."""
    with pytest.raises(DataContractError, match=r"Pool 'policy' must exist; got no .*Run 'rangeline prepare' first"):
        read_pool(workspace, "policy")


def test_prompts_survive_the_file(workspace):
    """Prompt rows come back from their file as they went in."""
    _ingest(
        workspace,
        [_row(1, labelled=True, metadata={"a": [1, None]}, domain="é", share="audit"), _row(2, labelled=False)],
    )
    rows = read_prompts(workspace.prompts / "prompts.parquet")
    write_prompts(workspace.root / "again.parquet", rows)
    assert rows == read_prompts(workspace.root / "again.parquet")
    assert ({"a": [1, None]}, "é", "audit") == (rows[0].metadata, rows[0].domain, rows[0].share)


def test_table_of_pools_has_what_the_expectations_need(workspace):
    """Each pool's plain rows carry id, text, suite, reference and cluster; no cluster is in two pools."""
    _split(workspace, _rows())
    table = pool_table(workspace)
    assert list(POOLS) == list(table)
    assert pool_counts(workspace) == {name: len(rows) for name, rows in table.items()}
    homes = {}
    for name, rows in table.items():
        for row in rows:
            assert {"prompt_id", "prompt_text", "suite", "reference", "cluster"} == set(row)
            assert name == homes.setdefault(row["cluster"], name)
