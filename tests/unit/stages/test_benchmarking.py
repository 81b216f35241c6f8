"""Benchmarks on the trained policy in miniature: every number worked again from the rows, resume, rescoring, holes."""

import itertools
import json
import shutil
from dataclasses import replace

import pytest

from rangeline.config import PipelineConfig
from rangeline.errors import ConfigError
from rangeline.lineage import digest_file
from rangeline.stages.benchmark_sampling import load_policy
from rangeline.stages.benchmarking import (
    BenchmarkSettings,
    compare_benchmarks,
    ks_of,
    plans_of,
    run_benchmarks,
    write_score_table,
)
from rangeline.stages.progress import silent
from rangeline.stages.tables import read_table
from rangeline.stages.workspace import Workspace

CONFIG = PipelineConfig()
SUMS = [(a, a + d) for a in range(57, 67) for d in (2, 7)]
SETTINGS = BenchmarkSettings(
    seed=3, benchmarks=("sums",), samples=4, pass_at=(1, 2, 4), max_tokens=3, max_problems=10, prompts_per_shard=3
)


def write_benchmark(root, name, rows):
    """Put a benchmark into a workspace."""
    folder = root / "data" / "benchmarks"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def sums():
    """Return problems whose answers are known without any checker."""
    return [
        {
            "prompt_id": f"sum-{small}-{large}",
            "prompt": f"{small} + ? = {large}",
            "suite": "reasoning_gym",
            "reference": str(large - small),
            "share": "evaluation",
        }
        for small, large in SUMS
    ]


@pytest.fixture(scope="module")
def place(trained, tmp_path_factory):
    """Give a workspace that holds the trained policy and the problems."""
    root = tmp_path_factory.mktemp("benchmarks") / "w"
    shutil.copytree(trained.workspace.root, root)
    write_benchmark(root, "sums", sums())
    return Workspace(root)


@pytest.fixture(scope="module")
def policy(place, trained):
    """Load the trained policy."""
    return load_policy(place, trained.config, "warmup")


@pytest.fixture(scope="module")
def result(place, policy):
    """Run the benchmark once."""
    return run_benchmarks(place, CONFIG, policy, SETTINGS, silent).results["sums"]


@pytest.fixture
def fresh(place, tmp_path):
    """Give a copy of the workspace without any evaluation."""
    shutil.copytree(place.root, tmp_path / "w", ignore=shutil.ignore_patterns("_benchmarks"))
    return Workspace(tmp_path / "w")


def files_of(folder):
    """Return the digest of every file below a folder."""
    return {str(p.relative_to(folder)): digest_file(p) for p in sorted(folder.rglob("*")) if p.is_file()}


def test_numbers_are_those_worked_by_hand_from_the_rows(result):
    """avg@4, pass@k, missing and cut-off shares follow from the completions alone, read without the suite."""
    rows = read_table(result.folder / "samples.parquet").to_pylist()
    assert len(rows) == 40
    truth = {f"sum-{small}-{large}": str(large - small) for small, large in SUMS}
    groups = {}
    for row in rows:
        text = row["completion"].strip()
        if row["finish"] == "stop" and text.isdecimal():
            verdict = float(int(text) == int(truth[row["prompt_id"]]))
            assert verdict == row["verdict"]
        groups.setdefault(row["prompt_id"], []).append(row["verdict"])
    valid = {name: [v for v in group if v is not None] for name, group in groups.items()}
    used = {name: group for name, group in valid.items() if group}
    estimates = result.metrics["estimates"]
    mean = sum(sum(group) / len(group) for group in used.values()) / len(used)
    assert pytest.approx(mean, abs=1e-12) == estimates["avg@4"]["value"]
    assert 0 < mean < 1
    for k in (1, 2, 4):
        enough = [group for group in valid.values() if len(group) >= k]
        shares = []
        for group in enough:
            draws = list(itertools.combinations(group, k))
            shares.append(sum(any(draw) for draw in draws) / len(draws))
        assert (len(enough), pytest.approx(sum(shares) / len(shares), abs=1e-12)) == (
            estimates[f"pass@{k}"]["num_prompts"],
            estimates[f"pass@{k}"]["value"],
        )
    assert sum(row["finish"] == "length" for row in rows) / 40 == result.metrics["truncated_share"]
    assert sum(row["verdict"] is None for row in rows) / 40 == result.metrics["missing_share"]


def test_settings_are_told_exactly(result):
    """n, temperature, top-p, limit, seed, problems asked and problems that exist stand beside the numbers."""
    told = {name: result.metrics[name] for name in ("samples", "temperature", "top_p", "max_tokens", "seed")}
    assert told == {"samples": 4, "temperature": 1.0, "top_p": 1.0, "max_tokens": 3, "seed": 3}
    assert (10, 20) == (result.metrics["num_problems"], result.metrics["num_available"])


def test_asking_again_samples_nothing(place, policy, result):
    """A finished benchmark is read: its shards and rows are not written again."""
    before = {path: path.stat().st_mtime_ns for path in result.folder.rglob("*.parquet")}
    again = run_benchmarks(place, CONFIG, policy, SETTINGS, silent).results["sums"]
    assert again == result
    assert before == {path: path.stat().st_mtime_ns for path in result.folder.rglob("*.parquet")}


def test_other_ks_read_the_same_samples(place, policy, result):
    """Each k is asked of the rows, not of the model: the folder is the same."""
    other = run_benchmarks(place, CONFIG, policy, replace(SETTINGS, pass_at=(3,)), silent).results["sums"]
    assert result.folder == other.folder
    assert "pass@3" in other.metrics["estimates"]
    run_benchmarks(place, CONFIG, policy, SETTINGS, silent)


def test_a_broken_off_run_ends_with_the_same_bytes(fresh, policy, result):
    """With one of four shards lost and nothing summed up yet, the rest is kept and the files come out equal."""
    target = fresh.root / "runs" / "_benchmarks" / result.folder.name
    shutil.copytree(result.folder / "shards", target / "shards")
    (target / "shards" / "00002.parquet").unlink()
    kept = {path: path.stat().st_mtime_ns for path in (target / "shards").iterdir()}
    run_benchmarks(fresh, CONFIG, policy, SETTINGS, silent)
    assert files_of(result.folder) == files_of(target)
    assert kept == {path: path.stat().st_mtime_ns for path in kept}


def test_progress_counts_kept_shards_as_done(fresh, policy, result):
    """Progress starts where the killed run stood and ends at the whole."""
    target = fresh.root / "runs" / "_benchmarks" / result.folder.name
    shutil.copytree(result.folder / "shards", target / "shards")
    (target / "shards" / "00003.parquet").unlink()
    told = []
    run_benchmarks(fresh, CONFIG, policy, SETTINGS, lambda label, done, total: told.append((label, done, total)))
    assert told == [("sums (warmup)", done, 40) for done in (12, 24, 36, 40)]


def test_a_table_with_holes_fills_what_it_can(place, policy):
    """The paper's table is filled where data are at hand; the rest is a hole with its reason, averages over it too."""
    write_benchmark(place.root, "math_500", sums())
    settings = replace(SETTINGS, benchmarks=(), preset="rlpr", samples=None, pass_at=None)
    results = run_benchmarks(place, CONFIG, policy, settings, silent)
    page = write_score_table(place, [results], settings)
    cells = {cell["title"]: cell for cell in json.loads(page.with_suffix(".json").read_text())["table"]["warmup"]}
    assert results.results["math_500"].metrics["estimates"]["avg@2"]["value"] == cells["MATH-500"]["value"]
    assert cells["GPQA"]["value"] is None
    assert cells["All"]["value"] is None
    assert "MMLU-Pro" in cells["All"]["reason"]
    assert "MATH-500" not in cells["All"]["reason"]
    text = page.read_text()
    assert f"{cells['MATH-500']['value']:.3f}" in text
    assert f"GPQA: {results.unavailable['gpqa_diamond']}" in text


def test_part_of_a_table_leaves_the_rest_unasked(place, policy):
    """Naming benchmarks of a preset runs those alone, and the other columns say that nobody asked."""
    write_benchmark(place.root, "math_500", sums())
    settings = replace(SETTINGS, benchmarks=("math_500",), preset="rlpr", samples=None, pass_at=None)
    results = run_benchmarks(place, CONFIG, policy, settings, silent)
    assert (["math_500"], {}) == (list(results.results), results.unavailable)
    page = write_score_table(place, [results], settings)
    assert "GPQA: not run" in page.read_text()


def test_a_prompt_without_room_is_missing_and_not_wrong(fresh, policy):
    """A prompt that leaves no room for the limit has no verdict and says why; the others are sampled."""
    long = {**sums()[0], "prompt_id": "long", "prompt": "1" * 600}
    write_benchmark(fresh.root, "sums", [sums()[1], long])
    metrics = run_benchmarks(fresh, CONFIG, policy, SETTINGS, silent).results["sums"].metrics
    assert metrics["missing_reasons"]["prompt too long"] == 0.5
    assert metrics["estimates"]["avg@4"]["num_prompts"] <= 1
    assert metrics["num_problems"] == 2


def test_an_unusable_reference_costs_only_its_own_problem(fresh, policy):
    """A reference that is no number makes its completions missing with a reason."""
    bad = {**sums()[0], "reference": "a dozen"}
    write_benchmark(fresh.root, "sums", [bad, *sums()[1:4]])
    metrics = run_benchmarks(fresh, CONFIG, policy, SETTINGS, silent).results["sums"].metrics
    assert metrics["missing_reasons"]["reference not usable"] == 0.25


def test_a_policy_equals_itself_problem_by_problem(place, policy):
    """Comparing a policy with itself finds no change on any shared problem."""
    results = run_benchmarks(place, CONFIG, policy, SETTINGS, silent)
    change = compare_benchmarks(results, results, confidence=0.9, seed=0)["sums"]
    assert (0.0, 0, 0, 1.0) == (change.mean, change.num_better, change.num_worse, change.mean_p_value)


def test_open_answers_are_scored_by_overlap(fresh, policy):
    """A summary is compared with its references; BERTScore is named as absent where its model is."""
    rows = [
        {
            "prompt_id": f"s{i}",
            "prompt": f"{i} + ? = 9",
            "suite": "open_ended",
            "reference": str(9 - i),
            "share": "evaluation",
            "metadata": {"extract": "summary"},
        }
        for i in range(3)
    ]
    write_benchmark(fresh.root, "samsum", rows)
    settings = replace(SETTINGS, benchmarks=("samsum",), preset="rrpo", samples=None, pass_at=None)
    results = run_benchmarks(fresh, CONFIG, policy, settings, silent)
    metrics = results.results["samsum"].metrics
    rows = read_table(results.results["samsum"].folder / "samples.parquet").to_pylist()
    assert pytest.approx(sum(row["rouge1"] for row in rows) / 3) == metrics["estimates"]["rouge1"]["value"]
    assert "roberta-large" in metrics["unavailable"]["bert_score"]
    text = write_score_table(fresh, [results], settings).read_text()
    assert "SAMSum BERT: BERTScore's model 'roberta-large' was not at hand" in text


def test_overlap_scores_are_of_the_model_that_is_named(fresh, policy, bert):
    """Asking again with another BERTScore model scores the same completions anew, and back again."""
    row = {"prompt_id": "s", "prompt": "1 + ? = 9", "suite": "open_ended", "reference": "8", "share": "evaluation"}
    write_benchmark(fresh.root, "samsum", [row])
    settings = replace(SETTINGS, benchmarks=("samsum",), preset="rrpo", samples=None, pass_at=None)
    first = run_benchmarks(fresh, CONFIG, policy, settings, silent).results["samsum"]
    before = read_table(first.folder / "samples.parquet")
    named = replace(settings, bert_model=str(bert))
    second = run_benchmarks(fresh, CONFIG, policy, named, silent).results["samsum"]
    after = read_table(second.folder / "samples.parquet")
    assert first.folder == second.folder
    assert before["completion"] == after["completion"]
    assert "bert_score" in second.metrics["estimates"]
    again = run_benchmarks(fresh, CONFIG, policy, settings, silent).results["samsum"]
    assert "bert_score" not in again.metrics["estimates"]


@pytest.mark.parametrize(
    ("over", "message"),
    [
        ({"benchmarks": ()}, "'benchmarks' must name a benchmark, or 'preset' a table; got neither"),
        ({"pass_at": (8,)}, "'pass_at' must be at most n=4; got 8"),
        ({"preset": "rlpr"}, "'benchmarks' must be of the preset 'rlpr'.*got 'sums'"),
        ({"preset": "gpt", "benchmarks": ()}, "'preset' must be one of"),
    ],
)
def test_what_cannot_be_asked_is_refused_before_sampling(over, message):
    """A request without a benchmark, with k above n, or outside its table ends at once."""
    with pytest.raises(ConfigError, match=message):
        plans_of(replace(SETTINGS, **over))


def test_k_of_a_table_are_asked_whatever_else_is():
    """The columns' k join those of the option, up to n; without an option powers of two are asked."""
    plan = plans_of(BenchmarkSettings(seed=0, preset="rrpo"))[0]
    assert ks_of(BenchmarkSettings(seed=0, preset="rrpo", pass_at=(3,)), plan) == (1, 2, 3, 4, 8)
    assert ks_of(BenchmarkSettings(seed=0, benchmarks=("gsm8k",)), replace(plan, samples=6)) == (1, 2, 4)


@pytest.mark.parametrize("name", ["warmup", "runs/r/checkpoints/000002", "r"])
def test_policies_are_found_by_any_of_their_names(place, trained, name):
    """The warmed-up policy, a checkpoint folder and a run's last checkpoint can all be asked."""
    found = load_policy(place, trained.config, name)
    assert (name, 512) == (found.label, found.context)


def test_a_model_folder_is_a_policy(place, trained, tiny_model_folder, policy):
    """A folder with a model needs no run; it is another policy than the trained one."""
    assert load_policy(place, trained.config, str(tiny_model_folder)).digest != policy.digest


def test_an_unknown_policy_is_refused(place, trained):
    """A name that is nothing here ends with what it must be."""
    with pytest.raises(ConfigError, match="'nobody' must be 'warmup', a run or a checkpoint folder"):
        load_policy(place, trained.config, "nobody")
