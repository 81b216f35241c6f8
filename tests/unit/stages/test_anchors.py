"""The anchor stages on a tiny real model: keyed, resumed, versioned by bytes, and refused when they do not fit."""

import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import yaml

from rangeline.advantages import compute_advantages
from rangeline.config import PipelineConfig, merge
from rangeline.errors import AnchorError
from rangeline.lineage import MANIFEST_NAME, digest_file, read_manifest
from rangeline.records import RolloutSet
from rangeline.rollout.pretrained import load_pretrained
from rangeline.rollout.selection import take_rollouts
from rangeline.stages import anchors as module
from rangeline.stages.anchor_rewards import require_current, score_by_anchor_contrast
from rangeline.stages.anchor_shards import find_shard, load_anchors, load_head
from rangeline.stages.data import read_pool
from rangeline.stages.progress import silent
from rangeline.stages.reward_quality import measure_quality
from rangeline.stages.rewarding import RewardContext
from rangeline.stages.tables import read_rollouts, read_table
from rangeline.stages.workspace import model_cache


def _make(copy, **over):
    config = PipelineConfig.model_validate(merge(copy.config.model_dump(), {"anchors": over}))
    module.anchors(copy.workspace, config, silent)
    return {path.name: digest_file(path) for path in copy.workspace.anchors.iterdir() if path.name != MANIFEST_NAME}


def _keys(copy):
    return read_table(copy.workspace.anchors / "index.parquet")["key"].to_pylist()


def _conditions(copy):
    return copy.workspace.root / "conditions" / "reasoning_gym.yaml"


class StoppedError(RuntimeError):
    """What stops a stage in a test."""


def _stop_after(shards):
    def progress(label, done, total):
        if label == "anchors" and done >= shards:
            raise StoppedError

    return progress


def test_every_prompt_has_its_anchors_and_queries(trained):
    """K anchors a side and M queries for each prompt of the chosen pools, in float32, all different enough to use."""
    made = load_anchors(trained.workspace.anchors)
    wanted = {row.prompt_id for pool in ("policy", "evaluation") for row in read_pool(trained.workspace, pool)}
    assert wanted == set(made.prompt_id_P)
    assert ((len(wanted), 2, 32), (len(wanted), 4, 32)) == (made.positive_PKH.shape, made.query_PMH.shape)
    assert not made.equal_P.all()


def test_the_head_sees_no_evaluated_prompt(trained):
    """Prompts of the evaluation pool have anchors, and take no part in training."""
    report = read_manifest(trained.workspace.metric_head / MANIFEST_NAME).facts
    policy = len(read_pool(trained.workspace, "policy"))
    assert policy == report["prompts"] + report["held_out_prompts"] + report["equal_prompts"]
    assert 8 == load_head(trained.workspace.metric_head).shape.dimension


def test_making_them_again_gives_the_same_bytes(copy, trained):
    """Another sitting, with nothing cached, makes the same files; so does the head."""
    shutil.rmtree(copy.workspace.anchor_cache)
    before = {path.name: digest_file(path) for path in trained.workspace.anchors.iterdir()}
    module.anchors(copy.workspace, copy.config, silent)
    module.metric_head(copy.workspace, copy.config, silent)
    assert before == {path.name: digest_file(path) for path in copy.workspace.anchors.iterdir()}
    for name in ("head.safetensors", "head.json"):
        assert digest_file(trained.workspace.metric_head / name) == digest_file(copy.workspace.metric_head / name)


def test_a_stopped_stage_goes_on_where_it_was(copy, trained):
    """Finished shards are taken from the cache, a damaged one is made again, and the bytes are those of one sitting."""
    shutil.rmtree(copy.workspace.anchor_cache)
    with pytest.raises(StoppedError):
        module.anchors(copy.workspace, copy.config, _stop_after(32))
    finished = sorted(copy.workspace.anchor_cache.glob("*.safetensors"))
    assert 2 == len(finished)
    times = finished[0].stat().st_mtime_ns
    finished[1].write_bytes(b"half")
    module.anchors(copy.workspace, copy.config, silent)
    assert times == finished[0].stat().st_mtime_ns
    for path in trained.workspace.anchors.iterdir():
        assert digest_file(path) == digest_file(copy.workspace.anchors / path.name), path.name


def test_another_condition_makes_other_anchors(copy):
    """A changed text changes every key and the anchors; a comment changes nothing."""
    first, keys = _make(copy), _keys(copy)
    text = _conditions(copy).read_text()
    _conditions(copy).write_text("# a note\n" + text)
    assert (first, keys) == (_make(copy), _keys(copy))
    _conditions(copy).write_text(text.replace('"Be exact."', '"Answer now."'))
    second = _make(copy)
    assert not set(keys) & set(_keys(copy))
    assert first["index.parquet"] != second["index.parquet"]
    assert {True} == {(copy.workspace.anchor_cache / f"{key}.parquet").is_file() for key in _keys(copy)}
    assert not (copy.workspace.anchor_cache / f"{keys[0]}.parquet").exists()


def test_another_starting_policy_makes_other_anchors(copy):
    """The key names the model by the digest of its files: another file, other keys."""
    keys = _keys(copy)
    (copy.workspace.warmup / "policy" / "added_tokens.json").write_text("{}")
    _make(copy)
    assert not set(keys) & set(_keys(copy))


@pytest.mark.parametrize("over", [{"count": 3}, {"queries": 3}])
def test_other_settings_make_other_anchors(copy, over):
    """What the anchors depend on is in their key."""
    keys = _keys(copy)
    _make(copy, **over)
    assert not set(keys) & set(_keys(copy))


def test_references_matter_only_where_they_are(copy):
    """Putting labelled prompts without their reference changes their shards, and no shard of unlabelled prompts."""
    table = read_table(copy.workspace.anchors / "index.parquet").to_pylist()
    labelled = {row["key"] for row in table if row["pool"] == "evaluation"}
    _make(copy, use_references=False)
    assert set(_keys(copy)).isdisjoint(labelled)
    assert {row["key"] for row in table} - labelled <= set(_keys(copy))


def test_shards_left_by_a_longer_list_are_gone(copy):
    """The folder holds the shards of its index and nothing else."""
    many = _make(copy, prompts_per_shard=4)
    few = _make(copy, prompts_per_shard=64)
    assert len(few) < len(many)
    assert {f"hidden-{n:05d}.safetensors" for n in range(len(few) - 1)} | {"index.parquet"} == set(few)


def test_a_half_written_shard_is_no_shard(copy):
    """Without an index, with a broken index or with other bytes than the index names, a shard is made again."""
    key = _keys(copy)[0]
    cache = copy.workspace.anchor_cache
    assert find_shard(cache, key) is not None
    assert find_shard(cache, "other") is None
    (cache / f"{key}.parquet").write_bytes(b"PAR1")
    assert find_shard(cache, key) is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: shutil.rmtree(w.root / "conditions"), "'anchors.conditions' must be a folder of the workspace"),
        (lambda w: (w.root / "conditions" / "reasoning_gym.yaml").unlink(), "One condition file must serve suite"),
        (lambda w: (w.root / "conditions" / "x.yaml").write_bytes(b"\xff\xfe"), "must be readable text"),
        (
            lambda w: (w.root / "conditions" / "x.yaml").write_text("suite: 1"),
            r"'suite' is not valid.*conditions/x.yaml",
        ),
    ],
)
def test_unusable_conditions_stop_the_stage(copy, change, message):
    """A missing folder, a suite without conditions and a broken file are told before anything is sampled."""
    change(copy.workspace)
    with pytest.raises(AnchorError, match=message):
        _make(copy)


def test_a_folder_outside_the_workspace_is_refused(copy):
    """Conditions are versioned with the workspace, so they lie in it."""
    with pytest.raises(AnchorError, match=r"'anchors.conditions' must be a folder of the workspace .* got '\.\./x'"):
        _make(copy, conditions="../x")


def test_old_anchors_do_not_serve_a_new_policy(copy):
    """Anchors of another starting policy, a head of other anchors, and none at all are refused."""
    require_current(copy.workspace)
    _make(copy, queries=3)
    with pytest.raises(AnchorError, match="'metric_head' must come from the present 'anchors'"):
        require_current(copy.workspace)
    manifest = copy.workspace.warmup / MANIFEST_NAME
    manifest.write_text(manifest.read_text().replace('"steps"', '"stepped"'))
    with pytest.raises(AnchorError, match="'anchors' must come from the present 'warmup'"):
        require_current(copy.workspace)
    shutil.rmtree(copy.workspace.anchors)
    with pytest.raises(AnchorError, match="'anchors' must be made first"):
        require_current(copy.workspace)


def test_prompts_without_anchors_cannot_be_scored(copy):
    """Where no prompt of the iteration has anchors, the message says which setting gives them."""
    rollouts = read_rollouts(copy.workspace.calibration / "source_rollouts.parquet")
    context = RewardContext(
        config=copy.config, workspace=copy.workspace, number=1, rollouts=rollouts, rows={}, models=None
    )
    with pytest.raises(AnchorError, match="Prompts to score must have anchors; got none of"):
        score_by_anchor_contrast(context)


def test_hostile_rollouts_are_scored_or_missing(copy):
    """An empty completion is missing, a group of one has no credit, and every other score is finite."""
    rollouts = read_rollouts(copy.workspace.calibration / "source_rollouts.parquet")
    prompt_id = load_anchors(copy.workspace.anchors).prompt_id_P[0]
    ids = tuple(rollouts.prompt_token_ids_N[0])
    completions = ((), (5,), (5,) * 60, (2,))
    hostile = RolloutSet(
        prompt_id_N=(prompt_id,) * 4,
        sample_N=(0, 1, 2, 3),
        completion_N=("", "1", "1" * 60, ""),
        prompt_token_ids_N=(ids,) * 4,
        token_ids_N=completions,
        sampled_logprobs_N=tuple((-1.0,) * len(row) for row in completions),
        finish_reason_N=("stop",) * 4,
        policy_version=0,
    )
    initial = load_pretrained(
        str(copy.workspace.warmup / "policy"), dtype="float32", trust_remote_code=False, cache_dir=model_cache()
    ).model
    context = RewardContext(
        config=copy.config,
        workspace=copy.workspace,
        number=1,
        rollouts=hostile,
        rows={},
        models=SimpleNamespace(initial=initial),
    )
    made = score_by_anchor_contrast(context).intervals
    assert made.missing_N[0]
    assert np.isfinite(made.center_N[~made.missing_N]).all()
    assert np.isfinite(compute_advantages(made, estimator="grpo").value_N).all()
    alone = score_by_anchor_contrast(replace(context, rollouts=take_rollouts(hostile, [1]))).intervals
    assert [0.0] == compute_advantages(alone, estimator="range").value_N.tolist()


@pytest.mark.parametrize("name", ["hidden-00000.safetensors", "index.parquet"])
def test_damaged_anchors_are_refused(copy, name):
    """A shard that is no safetensors, and an index that is no table, are named."""
    (copy.workspace.anchors / name).write_bytes(b"damaged")
    with pytest.raises(ValueError, match=name):
        load_anchors(copy.workspace.anchors)


def test_a_damaged_head_is_refused(copy):
    """Broken weights and a broken description are refused with what to do."""
    (copy.workspace.metric_head / "head.safetensors").write_bytes(b"damaged")
    with pytest.raises(AnchorError, match="Metric head must be safetensors"):
        load_head(copy.workspace.metric_head)
    (copy.workspace.metric_head / "head.json").write_text("{")
    with pytest.raises(AnchorError, match="The metric head must be trained first"):
        load_head(copy.workspace.metric_head)


def test_only_evaluated_prompts_leave_nothing_to_train_on(copy):
    """A head needs prompts that are not kept for evaluation."""
    _make(copy, pools=["evaluation"])
    with pytest.raises(AnchorError, match="Anchors must hold prompts of pools beside"):
        module.metric_head(copy.workspace, copy.config, silent)


def test_representations_are_those_of_the_unconditioned_prompt(copy):
    """Rows of one prompt and text have one representation, whichever condition led them."""
    table = read_table(copy.workspace.anchors / "index.parquet").to_pylist()
    made = load_anchors(copy.workspace.anchors)
    hidden = {}
    places = {"positive": made.positive_PKH, "negative": made.negative_PKH, "query": made.query_PMH}
    seen = {}
    for row in table:
        p = made.prompt_id_P.index(row["prompt_id"])
        nth = seen[p, row["role"]] = seen.get((p, row["role"]), -1) + 1
        hidden.setdefault((p, tuple(row["token_ids"])), []).append(places[row["role"]][p, nth])
    shared = [rows for rows in hidden.values() if len(rows) > 1]
    assert shared
    for rows in shared:
        assert all(np.array_equal(rows[0], row) for row in rows)


def test_manifests_name_what_they_came_from(trained):
    """Anchors name model, template and conditions; the head's parent is the anchors' manifest."""
    made = read_manifest(trained.workspace.anchors / MANIFEST_NAME)
    assert {"model_sha256", "template_sha256", "conditions", "prompts"} == set(made.facts)
    assert set(made.facts["conditions"]) == {path.name for path in (trained.workspace.root / "conditions").iterdir()}
    assert "conditions/reasoning_gym.yaml" in {ref.path for ref in made.inputs}
    head = read_manifest(trained.workspace.metric_head / MANIFEST_NAME)
    assert [digest_file(trained.workspace.anchors / MANIFEST_NAME)] == [ref.sha256 for ref in head.parents]
    assert yaml.safe_load(_conditions(trained).read_text())["suite"] == "reasoning_gym"


def test_quality_of_the_score_is_measured_beside_other_rewards(copy):
    """The evaluation pool has anchors by default, so that `reward-quality` can ask this source as well."""
    result = measure_quality(
        copy.workspace, copy.config, copy.workspace.warmup, ("anchor_contrast", "verifier"), silent
    )
    rows = {row["source"]: row for row in result.rows}
    assert 0.0 == rows["anchor_contrast"]["missing_share"]
    assert 0 <= rows["anchor_contrast"]["auc"] <= 1 == rows["verifier"]["auc"]
