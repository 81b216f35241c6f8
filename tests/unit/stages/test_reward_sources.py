"""Every reward source trains: two iterations by its name alone, honest about what it did not measure."""

import json
import shutil
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
import torch
from reward_case import context_of, row
from safetensors.torch import load_file

from rangeline.audit import audit
from rangeline.config import PipelineConfig, merge
from rangeline.errors import ConfigError, NothingKeptError, PoolError
from rangeline.lineage import MANIFEST_NAME, digest_file, read_manifest
from rangeline.records import RewardIntervals
from rangeline.reward_config import SourceName
from rangeline.rewards.registry import SOURCES
from rangeline.rewards.source import take_intervals
from rangeline.rollout.selection import take_rollouts
from rangeline.stages.crediting import credit_share, read_taught
from rangeline.stages.data import read_pool
from rangeline.stages.progress import silent
from rangeline.stages.reward_plan import RewardPlan, plan_rewards
from rangeline.stages.rewarding import reward_share
from rangeline.stages.run import RunFolder
from rangeline.stages.scorers import SCORERS
from rangeline.stages.session import TrainingSession
from rangeline.stages.tables import read_advantages, read_intervals, read_rollouts, read_table
from rangeline.stages.warmup import warmup


def _config(trained, source, **over):
    values = merge(trained.config.model_dump(), {"reward": {"source": source}})
    if source == "trapo":
        values = merge(values, {"train": {"labelled_prompts": 4}})
    return PipelineConfig.model_validate(merge(values, over))


def _train(trained, source, run, iterations=2, **over):
    config = _config(trained, source, **merge({"train": {"iterations": iterations}}, over))
    with TrainingSession(trained.workspace, config, run=run) as session:
        for number in session.remaining:
            session.sample(number)
            if session.plan.needs_judge:
                session.judge_states(number)
            session.bound(number)
            if session.plan.needs_judge:
                session.cover(number)
            session.update(number)
    return RunFolder(trained.workspace.runs / run)


def test_every_source_is_known_and_can_be_asked():
    """Names of settings, facts and scorers are the same."""
    named = set(get_args(SourceName))
    assert named == set(SOURCES) == set(SCORERS)


@pytest.fixture
def suited(request):
    """Give a copy of the workspace whose prompts a source can reward: worked out where it rewards the reasoning."""
    return lambda source: request.getfixturevalue("solved_copy" if SOURCES[source].needs_reasoning else "copy")


@pytest.mark.parametrize("source", sorted(SOURCES))
def test_source_trains_two_iterations(suited, source):
    """Two iterations run, their chain verifies, and rewards are rows of the rollouts."""
    copy = suited(source)
    run = _train(copy, source, f"two-{source}", train={"max_silent_iterations": 5})
    folder = run.iteration(2)
    rollouts, intervals = (
        read_rollouts(folder / "policy_rollouts.parquet"),
        read_intervals(folder / "policy_intervals.parquet"),
    )
    assert rollouts.prompt_id_N == intervals.prompt_id_N == read_advantages(folder / "advantages.parquet").prompt_id_N
    assert () == audit(copy.workspace.root, run.checkpoint(2), original=lambda name: None).failures
    metrics = json.loads((folder / "metrics.json").read_text())
    assert metrics["train/accuracy"] is not None
    if SOURCES[source].needs_reasoning:
        assert metrics["advantage/active_share"] > 0.2
    if not SOURCES[source].needs_judge:
        assert (None, None) == (metrics["coverage/empirical"], metrics["interval/mean_width"])
        made = {ref.path.rsplit("/", 1)[1] for ref in read_manifest(folder / MANIFEST_NAME).outputs}
        assert not made & {"coverage.json", "ratio.json", "policy_judgments.parquet", "gate.json"}


def test_source_without_references_says_where_they_are(copy):
    """The verifier on the unlabelled pool is refused before anything is sampled, with the way out."""
    config = _config(copy, "verifier", reward={"prompts": "policy"})
    with pytest.raises(PoolError, match=r"must hold prompts with a reference for reward source 'verifier'.*warmup"):
        TrainingSession(copy.workspace, config, run="none")


def test_labelled_sources_train_on_the_warmup_pool(copy):
    """By default a source that needs references draws its prompts from the labelled training pool."""
    run = _train(copy, "verifier", "labelled", iterations=1)
    pool = {item.prompt_id for item in read_pool(copy.workspace, "warmup")}
    assert set(read_rollouts(run.iteration(1) / "policy_rollouts.parquet").prompt_id_N) <= pool
    assert {"data/pools/warmup.parquet", "data/pools/audit.parquet"} == {
        ref.path for ref in read_manifest(run.iteration(1) / MANIFEST_NAME).inputs
    }


@pytest.mark.parametrize(
    ("over", "message"),
    [
        ({"reward": {"source": "verifier"}, "train": {"labelled_prompts": 2}}, "'train.labelled_prompts' must be 0"),
        ({"reward": {"source": "trapo"}}, "'train.labelled_prompts' must be positive for reward source 'trapo'"),
        ({"reward": {"source": "sft", "domains": {"far": "majority"}}}, "'sft' must stand alone"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(over, message):
    """Each contradiction is an error that names the setting."""
    with pytest.raises(ConfigError, match=message):
        plan_rewards(PipelineConfig.model_validate(over))


def test_judge_is_needed_only_by_its_sources():
    """A run needs calibration exactly where one of its sources asks the judge, a domain's own source included."""
    plans = [
        plan_rewards(PipelineConfig.model_validate({"reward": reward}))
        for reward in ({"source": "majority"}, {"source": "majority", "domains": {"d": "judge_interval"}}, {})
    ]
    assert [(), ("calibration",), ("calibration",)] == [plan.stages for plan in plans]
    assert [False, True, True] == [plan.needs_judge for plan in plans]


def test_run_without_a_judge_needs_no_calibration(copy):
    """Voting trains in a workspace that was never calibrated."""
    shutil.rmtree(copy.workspace.calibration)
    run = _train(copy, "majority", "uncalibrated", iterations=1)
    assert ("data/pools/manifest.json", "models/warmup/manifest.json") == tuple(
        ref.path for ref in read_manifest(run.iteration(1) / MANIFEST_NAME).parents
    )


MIXED = {"train": {"labelled_prompts": 4, "prompts_per_iteration": 6}}


def test_labelled_and_unlabelled_prompts_have_their_own_sources(copy):
    """Labelled prompts are verified and the others vote; each row says who scored it."""
    run = _train(copy, "majority", "mixed", iterations=1, **MIXED)
    table = read_table(run.iteration(1) / "policy_intervals.parquet").to_pydict()
    labelled = {item.prompt_id for item in read_pool(copy.workspace, "warmup")}
    assert {"verifier", "majority"} == set(table["source"])
    assert all((s == "verifier") == (p in labelled) for p, s in zip(table["prompt_id"], table["source"], strict=True))
    assert "majority+verifier" == read_intervals(run.iteration(1) / "policy_intervals.parquet").source


def test_weights_scale_the_advantages_of_a_source(copy):
    """A source of weight 0 trains nothing, one of weight 2 twice as much; the others keep theirs."""
    plain = _train(copy, "majority", "plain", iterations=1, **MIXED)
    weighted = _train(
        copy, "majority", "weighted", iterations=1, reward={"weights": {"verifier": 2.0, "majority": 0.0}}, **MIXED
    )
    source = np.array(read_table(plain.iteration(1) / "policy_intervals.parquet")["source"].to_pylist())
    before, after = (read_advantages(run.iteration(1) / "advantages.parquet").value_N for run in (plain, weighted))
    assert np.any(before != 0)
    np.testing.assert_array_equal(after, np.where(source == "verifier", 2 * before, 0.0))


def test_weights_scale_the_advantages_of_a_domain(copy):
    """Labelled near sums count half and unlabelled far ones thrice, in one update, each by its own source.

    A domain's factor comes on top of its source's.
    """
    plain = _train(copy, "majority", "plain", iterations=1, **MIXED)
    reward = {"weights": {"verifier": 4.0}, "domain_weights": {"near": 0.5, "far": 3.0}}
    weighted = _train(copy, "majority", "weighted", iterations=1, reward=reward, **MIXED)
    table = read_table(weighted.iteration(1) / "policy_intervals.parquet").to_pydict()
    before, after = (read_advantages(run.iteration(1) / "advantages.parquet").value_N for run in (plain, weighted))
    assert {("verifier", "near"), ("majority", "far")} == set(zip(table["source"], table["domain"], strict=True))
    factor = np.where(np.array(table["domain"]) == "near", 2.0, 3.0)
    np.testing.assert_allclose(after, factor * before)
    assert np.any(before != 0)


def test_each_source_may_have_its_own_update(copy):
    """With one optimiser call a source, each reports its own numbers and moves the policy's version."""
    setting = {"optimiser_calls": "per_source"}
    run = _train(copy, "token_entropy", "apart", iterations=2, reward=setting, **MIXED)
    names = set(json.loads((run.iteration(1) / "update.json").read_text()))
    assert {"verifier/loss", "token_entropy/loss"} & names
    assert "loss" not in names
    versions = [read_rollouts(run.iteration(n) / "policy_rollouts.parquet").policy_version for n in (1, 2)]
    assert [0, len({name.split("/")[0] for name in names if "/" in name})] == versions


@pytest.mark.parametrize("source", ["trapo", "reference_probability", "verifree", "pseudo_sft", "variance_aware"])
def test_lost_iteration_of_a_source_is_made_again_bit_for_bit(suited, source):
    """State, rewards, texts and weights of a repeated iteration have the bytes they had."""
    copy = suited(source)
    run = _train(copy, source, "again", train={"max_silent_iterations": 5})
    before = {ref.path: ref.sha256 for ref in read_manifest(run.iteration(2) / MANIFEST_NAME).outputs}
    (run.checkpoint(2) / "COMPLETE").unlink()
    for name in ("reward_state.json", "policy_intervals.parquet"):
        (run.iteration(2) / name).write_text("torn")
    _train(copy, source, "again", train={"max_silent_iterations": 5})
    assert before == {ref.path: ref.sha256 for ref in read_manifest(run.iteration(2) / MANIFEST_NAME).outputs}


def test_state_goes_on_from_iteration_to_iteration(copy):
    """TraPO's trajectories grow by a visit; they are named by the manifest and by the checkpoint."""
    run = _train(copy, "trapo", "grow", train={"prompts_per_iteration": 40, "max_silent_iterations": 5})
    first, second = (json.loads((run.iteration(n) / "reward_state.json").read_text())["trapo"] for n in (1, 2))
    assert {1} == {len(values) for values in first["trajectories"].values()}
    assert 2 == max(len(values) for values in second["trajectories"].values())
    assert any(
        ref.path.endswith("reward_state.json") for ref in read_manifest(run.iteration(2) / MANIFEST_NAME).outputs
    )
    state = json.loads((run.checkpoint(2) / "state.json").read_text())
    assert digest_file(run.iteration(2) / "reward_state.json") == state["reward_state_sha256"]


def test_filter_that_keeps_nothing_ends_the_run_by_its_own_name(solved_copy):
    """When no group's spread reaches the threshold the filter drops all, and the run says that it was the filter."""
    over = {
        "reward": _filtered({"record_from": 1, "filter_from": 2, "max_refills": 1, "beta": 50.0}),
        "train": {"max_silent_iterations": 1},
    }
    with pytest.raises(NothingKeptError, match="filter must keep a prompt within 1 iterations"):
        _train(solved_copy, "reference_probability", "filtered", **over)
    folder = solved_copy.workspace.runs / "filtered" / "iterations" / "000002"
    facts = json.loads((folder / "reward.json").read_text())
    assert ("nothing kept", 0) == (facts["reward/filter_end"], facts["reward/kept_prompts"])
    assert facts["reward/drawn_prompts"] > 8


def test_filter_refills_the_batch_from_its_pool(solved_copy):
    """Prompts whose rewards hardly differ leave, others of the pool take their place, and all that was drawn counts."""
    rule = {"record_from": 1, "filter_from": 2, "max_refills": 2, "beta": 0.9}
    run = _train(solved_copy, "reference_probability", "refilled", reward=_filtered(rule))
    facts = json.loads((run.iteration(2) / "reward.json").read_text())
    table = read_table(run.iteration(2) / "policy_intervals.parquet").to_pydict()
    kept = {prompt for prompt, keep in zip(table["prompt_id"], table["kept"], strict=True) if keep}
    assert facts["reward/filter_end"] in ("full", "refills spent")
    assert 8 < facts["reward/drawn_prompts"] == len(set(table["prompt_id"]))
    assert 0 < len(kept) == facts["reward/kept_prompts"] < facts["reward/drawn_prompts"]
    left = np.array([prompt not in kept for prompt in table["prompt_id"]])
    assert not read_advantages(run.iteration(2) / "advantages.parquet").value_N[left].any()


def _filtered(rule):
    return {"reference_probability": {"filter": rule}}


def test_supervised_sources_draw_one_greedy_completion(copy):
    """Texts are learned, nothing is rewarded: one rollout a prompt, all rewards missing, and a loss."""
    run = _train(copy, "sft", "taught", iterations=1)
    rollouts = read_rollouts(run.iteration(1) / "policy_rollouts.parquet")
    assert len(set(rollouts.prompt_id_N)) == len(rollouts)
    assert read_intervals(run.iteration(1) / "policy_intervals.parquet").missing_N.all()
    metrics = json.loads((run.iteration(1) / "metrics.json").read_text())
    assert (None, 1.0) == (metrics["reward/mean_center"], metrics["reward/missing_share"])
    assert metrics["policy/loss"] > 0


def test_judged_run_keeps_its_coverage(copy):
    """A peer of interval methods holds the same gate as the judge's intervals: coverage is measured."""
    run = _train(copy, "student_t", "peer", iterations=1, train={"max_silent_iterations": 5})
    metrics = json.loads((run.iteration(1) / "metrics.json").read_text())
    assert metrics["coverage/empirical"] is not None


@pytest.mark.parametrize("source", ["student_t", "variance_aware"])
def test_points_made_of_intervals_are_credited_as_points(copy, source):
    """What labelled intervals say of an estimator is no matter of other rewards: these get Dr.GRPO, at their size."""
    advantages = {"estimator": "auto", "reference_width": "auto", "advantage_scale": "match_batch"}
    run = _train(copy, source, "points", 1, train={"max_silent_iterations": 5}, advantages=advantages)
    assert not (run.iteration(1) / "choice.json").exists()
    table = read_table(run.iteration(1) / "advantages.parquet")
    assert table["midpoint"].to_pylist() == table["advantage"].to_pylist()


@pytest.mark.parametrize("setting", ["domains", "domain_weights"])
def test_a_misspelt_domain_is_refused(copy, setting):
    """A domain that no prompt has would change nothing; the message names those that there are."""
    value = {"fra": "majority" if setting == "domains" else 2.0}
    config = _config(copy, "majority", reward={setting: value}, train={"labelled_prompts": 4})
    with pytest.raises(ConfigError, match=rf"'reward.{setting}' must name domains .*far, near; got 'fra'"):
        TrainingSession(copy.workspace, config, run="none")


def test_a_number_of_a_source_keeps_its_name_over_the_iterations():
    """Where a run has several sources, a number says whose it is, also when only one had a prompt today."""
    plan = RewardPlan(source="pseudo_sft", labelled_source="verifier", domains={}, pool="policy")
    for rows in ([row("p", None)], [row("p", None), row("q")]):
        context = context_of(rows, [(item.prompt_id, "7") for item in rows])
        assert {"pseudo_sft/taught_share": 1.0} == reward_share(plan, SCORERS, context, {}).facts


def test_a_draw_belongs_to_its_rollout_wherever_that_stands():
    """Rollouts in another order get the same rewards: each draw is of its prompt and sample."""
    rows, completions = [row("p"), row("q")], [("p", "1"), ("p", "2"), ("q", "3"), ("p", "4")]
    judged = RewardIntervals(
        prompt_id_N=("p", "p", "q", "p"),
        lower_N=[0.0, 0.1, 0.2, 0.3],
        upper_N=[1.0, 0.9, 0.8, 0.7],
        unbounded_N=[True, False, False, False],
        missing_N=[False] * 4,
        support=(0.0, 1.0),
        source="judge_interval",
    )
    context, order = context_of(rows, completions, judged=judged), [3, 1, 2, 0]
    turned = replace(context, rollouts=take_rollouts(context.rollouts, order), judged=take_intervals(judged, order))
    plain, moved = (SCORERS["variance_aware"](item).intervals.center_N for item in (context, turned))
    assert plain[order].tolist() == moved.tolist()
    assert 4 == len(set(plain.tolist()))


def test_a_source_draws_further_prompts_of_its_own_only(solved_copy):
    """Where sources share the prompts, a refill never hands a source a prompt that belongs to another."""
    rule = {"filter": {"record_from": 1, "filter_from": 2, "max_refills": 2, "beta": 50.0}}
    reward = {"labelled_source": "reference_probability", "reference_probability": rule}
    train = {"labelled_prompts": 4, "max_silent_iterations": 5}
    run = _train(solved_copy, "majority", "mixed", reward=reward, train=train)
    labelled = {row.prompt_id for row in read_pool(solved_copy.workspace, "warmup")}
    table = read_table(run.iteration(2) / "policy_intervals.parquet").to_pydict()
    owned = {p for p, name in zip(table["prompt_id"], table["source"], strict=True) if name == "reference_probability"}
    assert owned
    assert owned <= labelled
    facts = json.loads((run.iteration(2) / "reward.json").read_text())
    assert 0 < facts["reward/reference_probability/filter_threshold"]
    assert 4 < facts["reward/reference_probability/drawn_prompts"]


def test_weights_scale_the_reference_term_with_the_advantages(solved_copy):
    """A weight of 0 turns both terms of VeriFree off: nothing is learned, and the iteration says so."""
    run = _train(solved_copy, "verifree", "off", iterations=1, reward={"weights": {"verifree": 0.0}})
    assert read_taught(run.iteration(1), _config(solved_copy, "verifree"))
    for weight, expected in ((0.0, False), (2.0, True)):
        config = _config(solved_copy, "verifree", reward={"weights": {"verifree": weight}})
        assert expected is credit_share(run.iteration(1), config, before=run.iteration(0))


@pytest.mark.parametrize("kind", ["match_batch", "match_initial"])
def test_a_scale_of_advantages_is_one_of_the_reference_term(solved_copy, kind):
    """What advantages are multiplied by, VeriFree's second term is too: they are one objective."""
    run = _train(solved_copy, "verifree", "plain", iterations=1)
    before = [row.weight for row in read_taught(run.iteration(1), _config(solved_copy, "verifree"))]
    config = _config(solved_copy, "verifree", advantages={"estimator": "grpo", "advantage_scale": kind})
    credit_share(run.iteration(1), config, before=run.iteration(0))
    factor = json.loads((run.iteration(1) / "credit.json").read_text())["advantage/scale"]
    assert abs(factor - 1) > 0.1
    after = [row.weight for row in read_taught(run.iteration(1), config)]
    np.testing.assert_allclose(after, factor * np.array(before))
    assert any(before)


@pytest.mark.parametrize(
    "over",
    [
        {"reward": {"source": "reference_probability"}},
        {"reward": {"source": "verifree"}},
        {"reward": {"source": "majority", "labelled_source": "verifree"}, "train": {"labelled_prompts": 4}},
    ],
)
def test_prompts_without_reasoning_are_refused_with_the_next_step(copy, over):
    """Where replies are answers alone there is no reasoning to reward: said before anything is sampled."""
    config = PipelineConfig.model_validate(merge(copy.config.model_dump(), over))
    says = r"must have prompts that are answered with reasoning; got \d+ of pool 'warmup' .*configs/reasoning.yaml"
    with pytest.raises(PoolError, match=says):
        TrainingSession(copy.workspace, config, run="none")


def test_of_mixed_prompts_those_with_reasoning_are_taken(copy):
    """A pool of both kinds trains on the prompts that are worked out, as one with few labels on the labelled."""
    plan = plan_rewards(_config(copy, "reference_probability"))
    bare, *_ = read_pool(copy.workspace, "warmup")
    worked = replace(bare, prompt_id="w", suite="grade_school_math")
    assert (worked,) == plan.usable([bare, worked])


def test_supervised_training_comes_before_any_method(solved_copy):
    """A run may begin from what the supervised source taught: its policy is named as the model of the next workspace.

    The warm-up of the second workspace makes no step, so that its start is the taught policy itself.
    """
    taught = _train(solved_copy, "sft", "taught", iterations=1)
    values = merge(solved_copy.config.model_dump(mode="json"), {"warmup": {"epochs": 0}})
    values["policy"]["model"] = str(taught.checkpoint(1) / "policy")
    config = PipelineConfig.model_validate(values)
    warmup(solved_copy.workspace, config, silent)
    start, end = (
        load_file(folder / "policy" / "model.safetensors")
        for folder in (solved_copy.workspace.warmup, taught.checkpoint(1))
    )
    assert all(torch.equal(start[name], end[name]) for name in start)
    run = _train(type(solved_copy)(solved_copy.workspace, config, solved_copy.run), "verifier", "after", iterations=1)
    assert (run.checkpoint(1) / "COMPLETE").is_file()
