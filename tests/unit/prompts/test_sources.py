"""Where records come from: local files, installed packages, and the Hub at a pinned commit."""

import json
from dataclasses import replace

import pytest

from rangeline.errors import ConfigError, DataContractError
from rangeline.prompts.benchmarks import benchmark_rows, make_benchmark, read_registry
from rangeline.prompts.sources import package_path, read_records

COLUMNS = {"question": "problem", "answer": "answer"}
ROWS = [{"problem": "1+1?", "answer": "2"}, {"problem": "2+2?", "answer": "4"}]


def _benchmark(source, **over):
    return make_benchmark("sums", {"suite": "competition_math", "source": source, "columns": COLUMNS, **over})


@pytest.mark.parametrize(
    ("name", "content", "over"),
    [
        ("rows.jsonl", "".join(json.dumps(row) + "\n" for row in ROWS), {}),
        ("rows.csv", "problem,answer\n1+1?,2\n2+2?,4\n", {}),
        ("rows.json", json.dumps(ROWS), {}),
        ("rows.json", json.dumps({"cases": ROWS}), {"rows_at": "cases"}),
    ],
)
def test_local_files_of_the_same_columns_are_read(tmp_path, name, content, over):
    """JSON lines, CSV and JSON hold the records of a benchmark."""
    (tmp_path / name).write_text(content)
    records = read_records(_benchmark(f"file:{name}", **over), root=tmp_path)
    assert ["2", "4"] == [row.reference for row in benchmark_rows(_benchmark("file:x"), records).rows]


def test_parquet_keeps_nested_columns(tmp_path):
    """Lists and structures of a Parquet file are read as such."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    record = {"id": "1", "question": "Who?", "choices": {"text": ["x", "y"], "label": ["A", "B"]}, "answerKey": "B"}
    pq.write_table(pa.Table.from_pylist([record]), tmp_path / "arc.parquet")
    arc = replace(read_registry()["arc_challenge"], source="file:arc.parquet")
    (row,) = benchmark_rows(arc, read_records(arc, root=tmp_path)).rows
    assert (["x", "y"], "B") == (row.metadata["options"], row.reference)


def test_hub_data_set_is_read_from_a_local_copy(tmp_path, monkeypatch):
    """`datasets` is asked for name, configuration, split and commit; a folder stands in for the Hub here."""
    import datasets

    (tmp_path / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    asked = {}
    real = datasets.load_dataset

    def load(name, config, *, split, revision):
        asked.update(name=name, config=config, revision=revision)
        return real(
            "json", data_files={"test": str(tmp_path / "test.jsonl")}, split=split, cache_dir=str(tmp_path / "c")
        )

    monkeypatch.setattr(datasets, "load_dataset", load)
    benchmark = _benchmark("hub:owner/sums", config="all", split="test", revision="a" * 40)
    assert ROWS == read_records(benchmark)
    assert {"name": "owner/sums", "config": "all", "revision": "a" * 40} == asked


def test_unreachable_hub_is_said_to_be_so():
    """Offline and without a cached copy the message names data set, commit and next step."""
    benchmark = _benchmark("hub:owner/absent", split="test", revision="b" * 40)
    with pytest.raises(DataContractError, match=r"'sums' must be readable from the Hub or its cache; .*bbbbbbbbbbbb"):
        read_records(benchmark)


@pytest.mark.parametrize("revision", [None, "main", "abc"])
def test_moving_revisions_are_refused(revision):
    """A branch is no benchmark: Hub sources are pinned to a commit."""
    with pytest.raises(ConfigError, match=r"'revision' must be a commit of 40 hexadecimal digits; got .*sums"):
        read_records(_benchmark("hub:owner/sums", revision=revision))


def test_packaged_data_is_found_without_importing():
    """A file inside an installed package is found by the package's place; its version must be the pinned one."""
    assert package_path("rangeline", "prompts/benchmarks.yaml").is_file()
    with pytest.raises(ConfigError, match=r"'rangeline' must be installed and hold 'x\.json'; got no file 'x\.json'"):
        package_path("rangeline", "x.json")
    with pytest.raises(ConfigError, match="got no such package"):
        package_path("no_such_package_here", "x.json")
    with pytest.raises(ConfigError, match=r"'revision' must be the installed version; got 9.9, installed"):
        read_records(_benchmark("package:pytest/py.typed", revision="9.9"))


@pytest.mark.parametrize(
    ("source", "content", "match"),
    [
        ("file:x.json", "{", "'x.json' must be a readable JSON file"),
        ("file:x.json", '{"rows": 1}', "'x.json' must hold a list of objects; got dict"),
        ("file:x.json", "[1]", "'x.json' must hold a list of objects"),
        ("file:y.jsonl", "", "must be a file that exists"),
    ],
)
def test_unusable_files_are_refused(tmp_path, source, content, match):
    """A file that is absent or of another form is named."""
    (tmp_path / "x.json").write_text(content)
    with pytest.raises(DataContractError, match=match):
        read_records(_benchmark(source), root=tmp_path)


def test_unknown_source_is_refused():
    """A source says of which kind it is."""
    with pytest.raises(ConfigError, match="'source' must start with hub:, package: or file:; got 'ftp:x'"):
        read_records(_benchmark("ftp:x"))
