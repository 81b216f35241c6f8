"""Estimates: counts that add up, bounds that follow the settings, and refusals of what cannot fit."""

import os

import pytest

from rangeline.config import PipelineConfig
from rangeline.errors import ModelLoadError
from rangeline.judge.rubric import parse_rubric
from rangeline.lineage import digest_file, write_json
from rangeline.provenance.ledger import Note, append_note
from rangeline.rollout.model_shape import ModelShape, read_shape
from rangeline.stages.estimate import count_rollouts, estimate_run, newest_seconds, questions_of
from rangeline.stages.estimate_parts import checkpoint_bytes, memory_parts
from rangeline.stages.expected_pools import expected_pools
from rangeline.stages.reward_plan import plan_rewards
from rangeline.stages.workspace import Workspace, open_workspace

SHAPE = ModelShape(weights=1000, layers=2, width=8, kv_width=4, vocabulary=32, max_positions=64)
POOLS = {"policy": 10, "source": 4, "calibration": 9, "ratio": 3, "warmup": 5, "audit": 6, "evaluation": 7}


def changed(**sections):
    """Return settings with sections laid over the defaults."""
    return PipelineConfig.model_validate(sections)


def test_no_share_draws_more_than_its_pool():
    """Rollouts are prompts of the share, at most those of the pool, times the group, times the iterations."""
    config = changed(sampling={"group_size": 4}, train={"iterations": 3, "prompts_per_iteration": 8})
    found = count_rollouts(config, plan_rewards(config), POOLS)
    assert {
        "calibrate": 13 * 4,
        "train": 3 * 4 * (8 + 6 + 3),
        "train, updated": 3 * 4 * 8,
        "train, judged": 3 * 4 * (8 + 6 + 3),
        "evaluate": 2 * 7 * 4,
    } == found


def test_without_a_judge_nothing_is_calibrated_or_judged():
    """A source that asks no judge draws no ratio share and costs no question."""
    config = changed(reward={"source": "majority"}, train={"iterations": 1, "prompts_per_iteration": 2})
    found = count_rollouts(config, plan_rewards(config), POOLS)
    assert (0, 0, 8 * (2 + 6)) == (found["calibrate"], found["train, judged"], found["train"])


def test_questions_count_orders_once_a_rollout_and_corrections_once_a_prompt():
    """Listed replies are asked in both orders; what no judge is asked costs nothing."""
    text = (
        "name: r\ncoordinates:\n"
        "- {name: a, kind: choice, question: '{completion}?', options: {n: 'no', y: 'yes'}, prior_correction: true}\n"
        "- {name: b, kind: choice, question: '{completion} {options}', options: {no: 'no', yes: 'yes'}}\n"
        "- {name: c, kind: well_formed}\n"
    )
    assert 16 + 2 + 2 * 16 == questions_of(parse_rubric(text, source="r"), 16, 8)[0]


def test_memory_follows_the_settings():
    """Full training holds 16 bytes a weight; adapters fewer; a KL term one more model; a judge its own weights."""
    plain = changed(policy={"sampler_dtype": "float32", "precision": "float32"}, judge={"dtype": "float32"})
    parts = memory_parts(SHAPE, SHAPE, plain, prompt_tokens=4, on_gpu=True)
    assert 16_000 == parts["policy weights"] + parts["gradients"] + parts["optimiser"]
    assert 4_000 == parts["judge weights"]
    assert "sampler's copy" not in parts
    kl = memory_parts(SHAPE, None, changed(objective={"kl_coefficient": 0.1}), prompt_tokens=4, on_gpu=True)
    assert 4_000 == kl["reference policy"]
    assert "judge weights" not in kl
    small = ModelShape(weights=10**6, layers=1, width=8, kv_width=4, vocabulary=32, max_positions=None)
    adapted = memory_parts(small, None, changed(lora={"rank": 1}), prompt_tokens=4, on_gpu=True)
    assert adapted["optimiser"] < 8 * 10**6 / 100


def test_checkpoints_are_those_kept_the_best_and_one_in_the_making():
    """Twelve bytes a weight each, and the start's four."""
    assert 12_000 * 4 + 4_000 == checkpoint_bytes(SHAPE, changed(train={"keep_checkpoints": 2}))


def test_a_shape_counts_what_transformers_makes():
    """Weights are those of the real architecture, tied ones once, without any being loaded."""
    architecture = {"n_layer": 2, "n_embd": 16, "n_head": 2, "n_positions": 32}
    found = read_shape("fresh:gpt2", architecture=architecture, vocabulary=20)
    block = 12 * 16 * 16 + 13 * 16
    assert 20 * 16 + 32 * 16 + 2 * block + 2 * 16 == found.weights
    assert (2, 16, 16, 20, 32) == (found.layers, found.width, found.kv_width, found.vocabulary, found.max_positions)


def test_a_model_that_is_not_there_is_one_error():
    """The name and the next step stand in the message."""
    with pytest.raises(ModelLoadError, match=r"'model' must have a configuration .*nosuchpackage"):
        read_shape("package:nosuchpackage", architecture={}, vocabulary=4)


def test_expected_pools_are_those_of_the_shares(tmp_path):
    """Before the data is prepared, generators are dealt out by the shares."""
    generator = {"name": "g", "size": 100, "domain": "d", "labelled": True}
    config = changed(data={"generators": [generator, {**generator, "labelled": False}]})
    counts, _ = expected_pools(Workspace(tmp_path), config)
    assert (25, 80, 20) == (counts["calibration"], counts["policy"], counts["ratio"])


def test_a_tiny_workspace_fits(trained):
    """Made pools are counted exactly, and nothing stands in the way of what was run already."""
    found = estimate_run(trained.workspace, trained.config, speed=1e9)
    assert () == found.problems
    assert all(seconds > 0 for seconds in found.seconds.values())
    assert found.measured_iteration_s is not None


def test_the_newest_iteration_is_the_one_that_the_ledger_names_last(tmp_path):
    """A clock that was set back between two iterations does not make the older one the newest."""
    place = Workspace(tmp_path)
    for number, (seconds, moment) in enumerate([(5.0, 2_000_000_000), (7.0, 1_000_000_000)], start=1):
        path = place.runs / "r" / "iterations" / f"{number:06d}" / "timings.json"
        write_json(path, {"time/generate_s": seconds})
        os.utime(path, (moment, moment))
        noted = {"path": path.relative_to(tmp_path).as_posix(), "sha256": digest_file(path)}
        append_note(tmp_path, Note(kind="iteration", ended="x", files=(noted,)))
    assert 7.0 == newest_seconds(place)


@pytest.mark.parametrize(
    ("over", "message"),
    [
        ({"objective": {"micro_batch_tokens": 10**11}}, "memory must hold"),
        ({"train": {"keep_checkpoints": 10**8}}, "the disk must hold"),
        ({"sampling": {"max_tokens": 512}}, "sampling.max_tokens must be below the model's 512 positions"),
        ({"intervals": {"alpha": 0.0001}}, "the calibration pool must hold 9999 prompts"),
        (
            {"judge": {"client": "server", "url": "http://x/v1", "budget": {"calls": 1}}},
            "judge.budget.calls must cover up to",
        ),
    ],
)
def test_what_cannot_fit_is_a_problem(trained, over, message):
    """Memory, disk, context, calibration and the judge's budget are each held against what is there."""
    _, config = open_workspace(trained.workspace.root)
    values = config.model_dump()
    for section, fields in over.items():
        values[section] = {**values[section], **fields}
    found = estimate_run(trained.workspace, PipelineConfig.model_validate(values), speed=1e9)
    assert any(message in problem for problem in found.problems), found.problems
