"""Iterations: which prompts they take, what their steps may read, and what closes them."""

import json
from collections import Counter

import numpy as np
import pytest

from rangeline.audit import audit
from rangeline.config import merge
from rangeline.lineage import MANIFEST_NAME, digest_file, read_manifest
from rangeline.records import Advantages, PromptRow, RewardIntervals
from rangeline.stages.calibration import load_calibration
from rangeline.stages.data import read_pool, write_prompts
from rangeline.stages.iteration import SHARES, Iteration
from rangeline.stages.prompt_order import pick_rows
from rangeline.stages.run import last_complete
from rangeline.stages.session import TrainingSession
from rangeline.stages.tables import (
    read_advantages,
    read_intervals,
    read_judgments,
    read_rollouts,
    read_table,
    write_intervals,
)


def _pool(num):
    return [PromptRow(prompt_id=str(i), prompt="q", suite="s") for i in range(num)]


def _picked(num, count, iteration, *, purpose="p", seed=0):
    rows = pick_rows(_pool(num), count, seed=seed, purpose=purpose, iteration=iteration)
    return [row.prompt_id for row in rows]


@pytest.mark.parametrize(("num", "count"), [(10, 3), (10, 5), (10, 7), (10, 10), (3, 5), (1, 1), (7, 6), (11, 4)])
def test_iteration_takes_distinct_prompts(num, count):
    """An iteration takes as many prompts as asked for, or the whole pool, and none twice."""
    for iteration in range(1, 40):
        picked = _picked(num, count, iteration)
        assert (min(num, count), len(picked)) == (len(picked), len(set(picked)))


@pytest.mark.parametrize(("num", "count"), [(10, 5), (12, 3), (10, 10), (4, 9), (6, 1)])
def test_epoch_takes_every_prompt_once(num, count):
    """Where the count divides the pool, each epoch of iterations takes every prompt exactly once."""
    an_epoch = num // min(num, count)
    for epoch in range(4):
        taken = [name for i in range(an_epoch) for name in _picked(num, count, epoch * an_epoch + i + 1)]
        assert {str(i) for i in range(num)} == set(taken)
        assert num == len(taken)


@pytest.mark.parametrize(("num", "count"), [(10, 3), (10, 7), (11, 4), (7, 6), (5, 2)])
def test_no_prompt_is_two_epochs_ahead_of_another(num, count):
    """Where the count does not divide the pool, no prompt has been taken twice more often than another at any time."""
    taken = Counter({str(i): 0 for i in range(num)})
    for iteration in range(1, 60):
        taken.update(_picked(num, count, iteration))
        assert max(taken.values()) - min(taken.values()) <= 2


@pytest.mark.parametrize(("num", "count"), [(10, 3), (10, 7), (11, 4), (7, 6), (5, 2)])
def test_whole_epochs_take_every_prompt_equally_often(num, count):
    """After a number of iterations that takes the pool a whole number of times, every prompt was taken that often."""
    taken = Counter(name for iteration in range(1, num + 1) for name in _picked(num, count, iteration))
    assert {count} == set(taken.values())


def test_iterations_are_picked_independently():
    """The prompts of an iteration depend on its number alone: no other iteration has to be picked before."""
    later = _picked(10, 3, 9)
    for iteration in range(1, 9):
        _picked(10, 3, iteration)
    assert later == _picked(10, 3, 9)


@pytest.mark.parametrize("over", [{"purpose": "other"}, {"seed": 1}, {"iteration": 2}])
def test_seed_purpose_and_iteration_decide(over):
    """Another seed, purpose or iteration takes other prompts, or another order."""
    assert _picked(30, 10, **{"iteration": 1}) != _picked(30, 10, **({"iteration": 1} | over))


def _iteration(trained, number, **over):
    config = trained.config.model_validate(merge(trained.config.model_dump(), over))
    return Iteration(trained.workspace, config, trained.run, number)


def _names(trained, number):
    return {share: {row.prompt_id for row in rows} for share, rows in _iteration(trained, number).rows.items()}


def test_shares_come_from_their_own_pools(trained):
    """Policy, ratio and audit prompts come from their pools, and no prompt is in two shares."""
    names = _names(trained, 1)
    for share in SHARES:
        assert names[share] <= {row.prompt_id for row in read_pool(trained.workspace, share)}
    assert sum(map(len, names.values())) == len(set().union(*names.values()))


def test_audit_prompts_are_of_the_policys_domain(trained):
    """Where the audit pool holds prompts of the policy's domain, coverage is measured on those alone."""
    assert {"far"} == {row.domain for row in _iteration(trained, 1).rows["audit"]}


def test_labelled_prompts_join_the_policy_share(trained):
    """With labelled prompts asked for, the policy share holds that many of the warm-up pool, and no held-out one."""
    rows = _iteration(trained, 1, train={"labelled_prompts": 3}).rows["policy"]
    labelled = {row.prompt_id for row in rows if row.reference is not None}
    assert 3 == len(labelled)
    assert labelled <= {row.prompt_id for row in read_pool(trained.workspace, "warmup")}


def test_rollouts_are_those_of_the_shares(trained):
    """Each share has one group of rollouts a prompt, of the policy version that the updates before have made."""
    for number in (1, 2):
        for share in SHARES:
            rollouts = read_rollouts(trained.run.iteration(number) / f"{share}_rollouts.parquet")
            groups = Counter(rollouts.prompt_id_N)
            assert _names(trained, number)[share] == set(groups)
            assert {trained.config.sampling.group_size} == set(groups.values())
            assert number - 1 == rollouts.policy_version


def test_tables_of_a_share_agree_row_for_row(trained):
    """Rollouts, judgments, intervals and advantages of a share name the same prompts in the same order."""
    folder = trained.run.iteration(2)
    for share in ("policy", "audit"):
        expected = read_rollouts(folder / f"{share}_rollouts.parquet").prompt_id_N
        assert expected == read_judgments(folder / f"{share}_judgments.parquet").prompt_id_N
        assert expected == read_intervals(folder / f"{share}_intervals.parquet").prompt_id_N
    expected = read_rollouts(folder / "policy_rollouts.parquet").prompt_id_N
    assert expected == read_advantages(folder / "advantages.parquet").prompt_id_N


def test_truth_of_policy_prompts_is_never_read(copy):
    """References smuggled into the policy and ratio pools change no interval and no advantage."""
    iteration = _iteration(copy, 2)
    names = [f"{share}_intervals.parquet" for share in ("policy", "audit")] + ["advantages.parquet", "ratio.json"]
    iteration.credit()
    before = {name: digest_file(iteration.folder / name) for name in names}
    for pool in ("policy", "ratio"):
        rows = [
            PromptRow(prompt_id=r.prompt_id, prompt=r.prompt, suite=r.suite, domain=r.domain, reference="1")
            for r in read_pool(copy.workspace, pool)
        ]
        write_prompts(copy.workspace.pools / f"{pool}.parquet", rows)
    calibration = load_calibration(copy.workspace, copy.config)
    iteration.refit_ratio(calibration)
    iteration.bound(calibration)
    iteration.credit()
    assert before == {name: digest_file(iteration.folder / name) for name in names}


def test_steps_repeat_bit_for_bit(copy):
    """Bounding, covering and crediting again give the same bytes."""
    iteration = _iteration(copy, 1)
    names = ("ratio.json", "policy_intervals.parquet", "audit_coverage.parquet", "coverage.json", "advantages.parquet")
    iteration.credit()
    before = [digest_file(iteration.folder / name) for name in names]
    calibration = load_calibration(copy.workspace, copy.config)
    iteration.refit_ratio(calibration)
    iteration.bound(calibration)
    iteration.cover()
    iteration.credit()
    assert before == [digest_file(iteration.folder / name) for name in names]


def test_labelled_rollouts_have_their_verdict_as_reward(copy):
    """The verdict of a labelled rollout is an interval of zero width; the judge bounds the unlabelled ones."""
    iteration = _iteration(copy, 1)
    calibration = load_calibration(copy.workspace, copy.config)
    rollouts = read_rollouts(iteration.folder / "policy_rollouts.parquet")
    pool = {row.prompt_id: row for row in read_pool(copy.workspace, "policy")}
    chosen = rollouts.prompt_id_N[0]
    wrong = PromptRow(prompt_id=chosen, prompt="q", suite=pool[chosen].suite, reference="31415")
    mixed = _iteration(copy, 1, train={"labelled_prompts": 1})
    mixed.__dict__["rows"] = {
        **iteration.rows,
        "policy": [wrong if r.prompt_id == chosen else r for r in iteration.rows["policy"]],
    }
    mixed.bound(calibration)
    intervals = read_intervals(mixed.folder / "policy_intervals.parquet")
    own = np.array([name == chosen for name in intervals.prompt_id_N])
    assert (0.0, 0.0) == (intervals.upper_N[own].max(), intervals.lower_N[own].max())
    assert (intervals.half_width_N[~own] > 0).any()


def test_missing_audit_rows_are_null_and_counted(copy):
    """An audit rollout without an interval has null bounds and width, counts as missing, and never as not covered."""
    iteration = _iteration(copy, 1)
    path = iteration.folder / "audit_intervals.parquet"
    old = read_intervals(path)
    missing = old.missing_N | (np.arange(len(old)) < 4)
    write_intervals(
        path,
        RewardIntervals(
            prompt_id_N=old.prompt_id_N,
            lower_N=old.lower_N,
            upper_N=old.upper_N,
            unbounded_N=old.unbounded_N,
            missing_N=missing,
            support=old.support,
            source=old.source,
        ),
    )
    report = iteration.cover()
    table = read_table(iteration.folder / "audit_coverage.parquet").to_pydict()
    for name in ("covered", "width", "unbounded"):
        assert [None] * 4 == table[name][:4]
    assert [True] * 4 == table["missing"][:4]
    valid = [value for value in table["covered"] if value is not None]
    assert (len(valid), sum(valid) / len(valid)) == (report.num_rows, report.empirical)
    assert missing.mean() == report.missing_share


def test_equal_rewards_are_no_signal(copy):
    """Where every rollout has the same interval no advantage differs from zero, and the step says so."""
    iteration = _iteration(copy, 1)
    path = iteration.folder / "policy_intervals.parquet"
    old = read_intervals(path)
    num = len(old)
    same = {"lower_N": [0.5] * num, "upper_N": [0.5] * num, "unbounded_N": [False] * num, "missing_N": [False] * num}
    write_intervals(path, RewardIntervals(prompt_id_N=old.prompt_id_N, support=(0, 1), source="s", **same))
    assert not iteration.credit()
    advantages: Advantages = read_advantages(iteration.folder / "advantages.parquet")
    assert not advantages.value_N.any()


def test_all_rewards_missing_is_no_signal(copy):
    """Where every reward is missing nothing is averaged: means are null, and no advantage is active."""
    iteration = _iteration(copy, 1)
    path = iteration.folder / "policy_intervals.parquet"
    ids = read_intervals(path).prompt_id_N
    nothing = np.full(len(ids), np.nan)
    record = RewardIntervals(
        prompt_id_N=ids,
        lower_N=nothing,
        upper_N=nothing,
        unbounded_N=nothing == 0,
        missing_N=nothing != 0,
        support=(0, 1),
        source="s",
    )
    write_intervals(path, record)
    assert not iteration.credit()
    facts = json.loads((iteration.folder / "credit.json").read_text())
    assert (1.0, None, None, None) == tuple(
        facts[name] for name in ("reward/missing_share", "reward/mean_center", "interval/policy_width", "advantage/rms")
    )


def test_manifest_closes_the_iteration(trained):
    """The manifest names every file that the steps made, each with its present hash."""
    folder = trained.run.iteration(2)
    manifest = read_manifest(folder / MANIFEST_NAME)
    made = {path.name for path in folder.iterdir() if path.is_file()} - {MANIFEST_NAME, "timings.json"}
    assert made == {ref.path.rsplit("/", 1)[1] for ref in manifest.outputs}
    assert all(digest_file(trained.workspace.root / ref.path) == ref.sha256 for ref in manifest.outputs)
    parents = {ref.path for ref in manifest.parents}
    assert "runs/r/iterations/000001/manifest.json" in parents
    assert {"data/pools/manifest.json", "models/warmup/manifest.json", "data/calibration/manifest.json"} < parents


def test_whole_chain_verifies(trained):
    """From the last checkpoint back to the raw data every byte verifies."""
    node = audit(trained.workspace.root, trained.run.checkpoint(2), original=lambda name: None)
    assert () == node.failures
    verified = {item.path for one in node.walk() for item in one.findings}
    assert {"data/raw/problems.jsonl", "rubrics/arithmetic.yaml", "data/calibration/scorer.ubj"} <= verified


def test_metrics_are_finite_or_null(trained):
    """Every number of an iteration is finite; what is not defined is null, and the file is strict JSON."""
    text = (trained.run.iteration(2) / "metrics.json").read_text()
    assert not {"NaN", "Infinity"} & set(text.replace(",", " ").split())
    metrics = _iteration(trained, 2).metrics()
    rollouts = [read_rollouts(trained.run.iteration(2) / f"{share}_rollouts.parquet") for share in SHARES]
    assert sum(map(len, rollouts)) == metrics["budget/rollouts"]
    assert sum(len(ids) for item in rollouts for ids in item.token_ids_N) == metrics["budget/tokens"]


def test_seconds_are_outside_the_manifest(copy):
    """Timings may differ from run to run, so no manifest names them."""
    before = digest_file(copy.run.iteration(2) / MANIFEST_NAME)
    _iteration(copy, 2).write_timings({"time/generate_s": 9.0})
    assert before == digest_file(copy.run.iteration(2) / MANIFEST_NAME)
    assert "timings" not in (copy.run.iteration(2) / MANIFEST_NAME).read_text()


def test_finished_run_has_nothing_left_to_do(trained):
    """All iterations are complete; a session on the same run has none remaining."""
    assert (2, ()) == last_complete(trained.run)
    assert 0 == len(TrainingSession(trained.workspace, trained.config, run="r").remaining)


def test_lost_iteration_is_made_again_bit_for_bit(copy):
    """When the last iteration's checkpoint is lost, resuming repeats it: every file has the bytes it had."""
    folder = copy.run.iteration(2)
    before = {ref.path: ref.sha256 for ref in read_manifest(folder / MANIFEST_NAME).outputs}
    (copy.run.checkpoint(2) / "COMPLETE").unlink()
    with TrainingSession(copy.workspace, copy.config, run="r") as session:
        assert ([2], ("checkpoint 2: not complete",)) == (list(session.remaining), session.opened.passed_over)
        for step in (session.sample, session.judge_states, session.bound, session.cover, session.update):
            step(2)
    assert before == {ref.path: ref.sha256 for ref in read_manifest(folder / MANIFEST_NAME).outputs}
