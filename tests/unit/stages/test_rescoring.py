import json
import shutil
from pathlib import Path

import pytest

from rangeline.errors import ConfigError
from rangeline.lineage import MANIFEST_NAME, digest_file
from rangeline.stages.rescoring import rescore
from rangeline.stages.tables import read_table, write_table
from rangeline.stages.workspace import Workspace


@pytest.fixture
def old(trained, tmp_path):
    """Give a finished benchmark of the trained policy, in a workspace of its own."""
    from rangeline.stages.benchmark_sampling import load_policy
    from rangeline.stages.benchmarking import BenchmarkSettings, run_benchmarks
    from rangeline.stages.progress import silent

    shutil.copytree(trained.workspace.root, tmp_path / "w")
    place = Workspace(tmp_path / "w")
    folder = place.root / "data" / "benchmarks"
    folder.mkdir(parents=True)
    rows = [
        {"prompt_id": f"p{a}", "prompt": f"{a} + ? = {a + 7}", "suite": "reasoning_gym", "reference": "7"}
        for a in range(70, 76)
    ]
    (folder / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings = BenchmarkSettings(seed=1, benchmarks=("sums",), samples=2, max_tokens=3)
    results = run_benchmarks(place, trained.config, load_policy(place, trained.config, "warmup"), settings, silent)
    return place, results.results["sums"]


def test_the_same_checker_changes_nothing(old):
    """Rows and metrics come out equal, byte for byte, and the old ones stay."""
    place, result = old
    before = digest_file(result.folder / "samples.parquet")
    found = rescore(place, result.folder)
    assert ([], {}, 12) == (found.changes, found.moved, found.num_completions)
    assert before == digest_file(found.folder / "samples.parquet") == digest_file(result.folder / "samples.parquet")
    assert result.metrics == json.loads((found.folder / "metrics.json").read_text())
    assert (found.folder / MANIFEST_NAME).is_file()


def test_what_an_older_checker_said_is_told_beside_the_present_verdict(old):
    """Verdicts that an older checker left come out as the present one has them, with both told, without a model."""
    place, result = old
    path = result.folder / "samples.parquet"
    table = read_table(path).to_pydict()
    row = next(i for i, verdict in enumerate(table["verdict"]) if verdict is not None)
    true = table["verdict"][row]
    table["verdict"][row], table["reason"][row] = 1.0 - true, "as an older checker said"
    write_table(path, table)
    metrics = json.loads((result.folder / "metrics.json").read_text())
    metrics["estimates"]["avg@2"]["value"] = -1.0
    (result.folder / "metrics.json").write_text(json.dumps(metrics))
    shutil.rmtree(place.warmup)
    found = rescore(place, result.folder.relative_to(place.root))
    (change,) = found.changes
    assert [1.0 - true, true] == change["verdict"]
    assert change["reason"][0] == "as an older checker said"
    assert (table["prompt_id"][row], table["sample"][row]) == (change["prompt_id"], change["sample"])
    assert (-1.0, result.metrics["estimates"]["avg@2"]["value"]) == found.moved["avg@2"]
    assert list(found.moved) == ["avg@2"]


def test_a_benchmark_is_found_by_its_folder_name(old):
    """The bare name below the evaluations is enough."""
    place, result = old
    assert result.folder / "rescored" == rescore(place, Path(result.folder.name)).folder


def test_what_is_no_benchmark_is_refused(old):
    """A folder without metrics ends with what it must be."""
    with pytest.raises(ConfigError, match="'nothing' must be the folder of a finished benchmark"):
        rescore(old[0], Path("nothing"))
