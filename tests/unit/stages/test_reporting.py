"""Reports: a page and a table that say what the run's files say."""

import json
from dataclasses import replace

import jsonschema
import numpy as np
import pytest

from rangeline.errors import ConfigError
from rangeline.evaluation.comparison import PairedDifference
from rangeline.evaluation.run_summary import METRICS
from rangeline.judge.rubric import parse_rubric
from rangeline.lineage import digest_file
from rangeline.stages.data import pool_counts, read_pool
from rangeline.stages.estimate import estimate_run, questions_of
from rangeline.stages.report_transcripts import transcripts_of
from rangeline.stages.reporting import evaluations_of, summarise, write_report
from rangeline.stages.run import RunFolder
from rangeline.stages.tables import read_intervals, read_table, write_intervals


def _metrics(value, num=4):
    return {"num_prompts": num, "average": {"value": value, "lower": 0.0, "upper": 1.0, "num_prompts": num}}


DIFFERENCE = {"mean": 0.25, "lower": 0.0, "upper": 0.5, "p_value": 0.5, "mean_p_value": 0.5, "confidence": 0.95}
COUNTS = {"num_shared": 4, "num_better": 2, "num_worse": 0, "num_unshared": 0}
PAIRED = {"all": PairedDifference(**DIFFERENCE, **COUNTS)}


def test_domains_are_put_side_by_side():
    """Each domain of the first evaluation has its value before and after, and its paired difference."""
    (row,) = evaluations_of({"all": _metrics(0.5)}, {"all": _metrics(0.75)}, PAIRED)
    assert ("all", 4, 0.5, 0.75, 0.25) == (
        row.domain,
        row.num_prompts,
        row.before.value,
        row.after.value,
        row.paired.mean,
    )


def test_domain_that_was_not_measured_again_is_unknown():
    """A domain without a second evaluation has no value after, and no difference: never 0."""
    (row,) = evaluations_of({"far": _metrics(0.5)}, {"all": _metrics(0.75)}, PAIRED)
    assert (None, None) == (row.after, row.paired)


def test_summary_says_what_the_files_say(trained):
    """Iterations, calibration rows and budget of the summary are those of the run's files."""
    summary = summarise(trained.workspace, trained.run, ())
    assert ("r", [1, 2]) == (summary.run_name, [row["iteration"] for row in summary.iterations])
    for number, row in enumerate(summary.iterations, start=1):
        stored = json.loads((trained.run.iteration(number) / "metrics.json").read_text())
        assert stored == {name: row[name] for name in stored}
        coverage = json.loads((trained.run.iteration(number) / "coverage.json").read_text())
        assert coverage["status"] == row["status"]
        assert 1.0 == row["time/generate_s"]
    reliability = json.loads((trained.workspace.calibration / "reliability.json").read_text())
    pooled = [row.count for row in summary.calibration if row.pool == "calibration"]
    assert sum(row["count"] for row in reliability) == sum(pooled)
    assert sum(row["budget/rollouts"] for row in summary.iterations) == summary.budget["rollouts"]


def test_run_card_names_every_setting_of_the_run(trained):
    """The card holds identity, seed and each setting of the sections that decide a run."""
    card = summarise(trained.workspace, trained.run, ()).run_card
    for section in ("policy", "sampling", "judge", "intervals", "advantages", "objective", "train", "coverage"):
        for name, value in getattr(trained.config, section).model_dump(mode="json").items():
            assert value == card[f"{section}.{name}"]
    assert trained.config.seed == card["seed"]


def test_private_problems_are_in_no_transcript(trained):
    """A prompt whose owner keeps it private is left out of the page, and the next one takes its place."""
    rows = {row.prompt_id: row for row in read_pool(trained.workspace, "policy")}
    folder = trained.run.iteration(1)
    first = transcripts_of(folder, 1, rows)[0].prompt
    hidden = {
        name: replace(row, metadata={"private": True}) if row.prompt == first else row for name, row in rows.items()
    }
    left = [item.prompt for item in transcripts_of(folder, 1, hidden)]
    assert left
    assert first not in left


def test_transcripts_are_of_the_first_and_the_last_iteration(trained):
    """Shown rollouts come from both ends of the run, with null bounds only where the reward is missing."""
    transcripts = summarise(trained.workspace, trained.run, ()).transcripts
    assert {1, 2} == {item.iteration for item in transcripts}
    rollouts = [rollout for item in transcripts for rollout in item.rollouts]
    assert all((rollout.lower is None) == (rollout.upper is None) for rollout in rollouts)
    trained_on = [rollout for item in transcripts if item.share == "policy" for rollout in item.rollouts]
    audited = [rollout for item in transcripts if item.share == "audit" for rollout in item.rollouts]
    assert {"unlabelled"} == {rollout.verdict for rollout in trained_on}
    assert "unlabelled" not in {rollout.verdict for rollout in audited}
    assert {None} == {rollout.advantage for rollout in audited}


def test_lineage_lists_hashes_that_match(trained):
    """Every file of the page's lineage has the hash that the page shows."""
    entries = summarise(trained.workspace, trained.run, ()).lineage
    assert {"prompts", "pools", "warmup", "calibration", "iteration 2"} == {entry.kind for entry in entries}
    assert all(digest_file(trained.workspace.root / entry.path) == entry.sha256 for entry in entries)


def test_page_and_numbers_are_written_together(copy):
    """The report writes a page and its numbers, whose table is the one it returns."""
    page, table = write_report(
        copy.workspace, copy.run, evaluations_of({"all": _metrics(0.5)}, {"all": _metrics(0.75)}, PAIRED)
    )
    numbers = json.loads((copy.run.root / "report.json").read_text())
    assert (copy.run.root / "report.html", dict(table)) == (page, numbers["table"])
    assert ["r", 2] == [numbers["run"], len(numbers["iterations"])]
    assert "50.0%" in numbers["table"]["accuracy before, all"]
    assert page.read_text().lower().startswith("<!doctype html>")


def test_page_is_the_same_every_time(copy):
    """The same run gives the same page, byte for byte: it shows no clock."""
    first = write_report(copy.workspace, copy.run, ())[0].read_bytes()
    assert first == write_report(copy.workspace, copy.run, ())[0].read_bytes()


def test_run_without_timings_has_a_report(copy):
    """Timings are extra: without them the page is made all the same."""
    (copy.run.iteration(1) / "timings.json").unlink()
    assert "time/generate_s" not in summarise(copy.workspace, copy.run, ()).iterations[0]


def test_closed_gate_is_on_the_page(copy):
    """A coverage gate that failed is listed with its reasons, iteration by iteration."""
    folder = copy.run.iteration(2) / "expectations"
    folder.mkdir()
    result = {"success": False, "failed": ["too narrow", "too few"], "warned": ["mind this"]}
    (folder / "result.json").write_text(json.dumps(result))
    outcomes = summarise(copy.workspace, copy.run, ()).expectations
    outcome = next(item for item in outcomes if item.name.startswith("coverage"))
    assert ("coverage gate, iteration 2", False, "too narrow; too few; mind this") == (
        outcome.name,
        outcome.success,
        outcome.detail,
    )


def test_overlap_rules_are_on_the_page(copy):
    """Each iteration tells which overlap rules are broken, with value, limit and consequence, and what was widened."""
    path = copy.run.iteration(2) / "overlap.json"
    stored = json.loads(path.read_text())
    for finding in stored["findings"]:
        finding["value"] = None
    stored["findings"][0] |= {"value": 0.05, "consequence": "widen"}
    path.write_text(json.dumps(stored | {"widened": {"policy": 3, "audit": 2}}))
    named = {item.name: item for item in summarise(copy.workspace, copy.run, ()).expectations}
    outcome = named["overlap, iteration 2"]
    assert outcome.success
    assert "the effective sample share must be at least 0.1; got 0.05 (widen)." in outcome.detail
    assert "5 intervals were widened" in outcome.detail
    path.write_text(json.dumps({"weighted": False, "findings": [], "widened": {}}))
    named = {item.name: item for item in summarise(copy.workspace, copy.run, ()).expectations}
    assert named["overlap, iteration 2"].success is None
    assert "overlap.ess_share" in summarise(copy.workspace, copy.run, ()).run_card


def test_run_without_an_iteration_has_a_summary(copy):
    """A run that finished nothing is summarised with no iterations, no transcripts and no budget of its own."""
    for number in (1, 2):
        (copy.run.checkpoint(number) / "COMPLETE").unlink()
    summary = summarise(copy.workspace, copy.run, ())
    assert ((), ()) == (summary.iterations, summary.transcripts)


def test_unknown_run_has_no_report(trained):
    """A run that does not exist is an error that lists those that do."""
    with pytest.raises(ConfigError, match=r"Run 'none' must exist; got no .*Known runs: r\."):
        write_report(trained.workspace, RunFolder(trained.workspace.runs / "none"), ())


def test_numbers_beside_the_page_are_those_of_the_page(copy):
    """JSON keeps to its schema, and Parquet holds the same numbers, null where the page has a dash."""
    write_report(copy.workspace, copy.run, ())
    root = copy.run.root
    numbers = json.loads((root / "report.json").read_text())
    jsonschema.validate(numbers, json.loads((root / "report.schema.json").read_text()))
    table = read_table(root / "report_iterations.parquet").to_pylist()
    assert [row["iteration"] for row in numbers["iterations"]] == [row["iteration"] for row in table]
    for metric in METRICS:
        assert [row.get(metric.key) for row in numbers["iterations"]] == [row[metric.key] for row in table]
    points = read_table(root / "report_calibration.parquet").to_pylist()
    assert [row["count"] for row in numbers["calibration"]] == [row["count"] for row in points]


def test_audits_say_whether_turned_signs_were_right(trained):
    """Of the signs that would be turned on audited rollouts, no more met a truth than were turned."""
    for row in summarise(trained.workspace, trained.run, ()).iterations:
        assert row["audit/flips_right"] + row["audit/flips_wrong"] <= row["audit/flips"] <= row["audit/credited"]


def test_run_card_names_what_gives_the_numbers_their_meaning(trained):
    """Normaliser, KL, sampling, parser and the digests of what the run was made from are told in words."""
    card = summarise(trained.workspace, trained.run, ()).key_card
    names = {"estimator", "normaliser", "KL term", "sampling", "parser", "judge", "code"}
    assert names <= set(card)
    assert digest_file(trained.workspace.calibration / "manifest.json") == card["digest of calibration"]


def test_scorer_of_another_calibration_says_nothing(copy):
    """Where calibration was made anew since the run, its scorer is not used, and the page says so."""
    manifest = copy.workspace.calibration / "manifest.json"
    manifest.write_text(manifest.read_text() + "\n")
    summary = summarise(copy.workspace, copy.run, ())
    assert () == summary.calibration
    assert "made anew" in summary.notes[0]
    assert all("judge/agreement" not in row for row in summary.iterations)


def test_judge_calls_are_what_the_estimate_said(trained):
    """A run's questions are counted as they were estimated: by rollout, by order of the replies, once a prompt."""
    summary = summarise(trained.workspace, trained.run, ())
    assert estimate_run(trained.workspace, trained.config, speed=1e9).judge_questions == (
        summary.budget["judge calls"] + _calibration_questions(trained)
    )


def _calibration_questions(trained):
    counts, config = pool_counts(trained.workspace), trained.config
    rollouts = (counts["source"] + counts["calibration"]) * config.sampling.group_size
    text = (trained.workspace.root / config.judge.rubric).read_text()
    return questions_of(parse_rubric(text, source="rubric"), rollouts, config.sampling.group_size)[0]


def test_a_missing_reward_has_no_credit_on_the_page(copy):
    """The zero that the update takes for it is shown as unknown."""
    folder = copy.run.iteration(1)
    rows = {row.prompt_id: row for pool in ("policy", "audit") for row in read_pool(copy.workspace, pool)}
    intervals = read_intervals(folder / "policy_intervals.parquet")
    missing = np.ones(len(intervals), dtype=bool)
    write_intervals(folder / "policy_intervals.parquet", replace(intervals, missing_N=missing, unbounded_N=~missing))
    shown = [item for item in transcripts_of(folder, 1, rows) if item.share == "policy"]
    assert {None} == {rollout.advantage for item in shown for rollout in item.rollouts}
