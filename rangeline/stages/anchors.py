"""Anchor stages of RRPO: sample anchors from the starting policy, represent them, and train the metric head on them.

Anchors are made a shard of prompts at a time. A shard lies first in a cache under the digest of everything it depends
on (model, chat template, conditions, the very token ids, seed and sampling), so that a stage that was killed goes on
where it was, and another condition makes other anchors. The shards of one stage then become `data/anchors`, which DVC
versions: equal inputs give equal bytes, however often the stage was interrupted.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from rangeline.config import PipelineConfig
from rangeline.errors import AnchorError
from rangeline.lineage import MANIFEST_NAME, atomic_write, digest_json, write_json, write_manifest
from rangeline.prompts.condition_prompts import condition_prompt
from rangeline.prompts.conditions import STRATA, Conditions, Stratum, conditions_for, parse_conditions
from rangeline.records import PromptRow, RolloutSet
from rangeline.rewards.head_training import HeadSettings, train_head
from rangeline.rollout.engine import EncodedPrompt
from rangeline.rollout.pretrained import Pretrained, encode_prompt, resolve_dtype
from rangeline.rollout.representation import mean_hidden
from rangeline.rollout.selection import join_rollouts
from rangeline.rollout.transformers_engine import TransformersEngine
from rangeline.stages.anchor_shards import Shard, find_shard, keep_only, load_anchors, put_together, write_shard
from rangeline.stages.data import read_pool
from rangeline.stages.judging import encode_rows, load_sampler, plan_of
from rangeline.stages.progress import Progress
from rangeline.stages.workspace import Workspace
from rangeline.suites.registry import get_suite

UNTRAINED_POOLS = frozenset({"audit", "evaluation"})
"""Their prompts have anchors so that they can be scored; the head never sees them in training."""
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class _Batch:
    """The prompts of one shard as they are asked: without a condition, and under that of each anchor."""

    rows: tuple[PromptRow, ...]
    plain: tuple[EncodedPrompt, ...]
    conditioned: dict[tuple[Stratum, int], tuple[EncodedPrompt, ...]]
    condition_digests: tuple[str, ...]
    key: str


@dataclass(frozen=True, slots=True)
class _Models:
    """The starting policy, frozen: in the sampler's precision to write, in float32 to represent."""

    sampler: Pretrained
    reader: Pretrained


def _load_models(workspace: Workspace, config: PipelineConfig) -> _Models:
    sampler, _ = load_sampler(config, workspace.warmup / "policy")
    if resolve_dtype(config.policy.sampler_dtype) == "float32":
        return _Models(sampler, sampler)
    float32 = config.model_copy(update={"policy": config.policy.model_copy(update={"sampler_dtype": "float32"})})
    return _Models(sampler, load_sampler(float32, workspace.warmup / "policy")[0])


def read_conditions(workspace: Workspace, folder: str) -> tuple[list[Conditions], list[Path]]:
    """Read every condition file of a workspace, and return where they lie.

    Raises
    ------
    AnchorError
        When the folder lies outside the workspace or holds no file, or a file is not usable.
    """
    place = (workspace.root / folder).resolve()
    files = sorted(place.glob("*.yaml")) if place.is_relative_to(workspace.root.resolve()) else []
    if not files:
        msg = f"'anchors.conditions' must be a folder of the workspace with .yaml files; got '{folder}'. Write one."
        raise AnchorError(msg)
    found = []
    for path in files:
        try:
            found.append(parse_conditions(path.read_text(encoding="utf-8"), source=f"{folder}/{path.name}"))
        except (OSError, UnicodeDecodeError) as error:
            msg = f"Condition file '{path}' must be readable text; got {error}. Correct it."
            raise AnchorError(msg) from error
    return found, files


def anchors(workspace: Workspace, config: PipelineConfig, progress: Progress) -> None:
    """Sample and represent the anchors of every prompt of the chosen pools; write `data/anchors`."""
    settings = config.anchors
    pools = tuple(dict.fromkeys(settings.pools))
    pool_of = {row.prompt_id: pool for pool in pools for row in read_pool(workspace, pool)}
    rows = sorted((row for pool in pools for row in read_pool(workspace, pool)), key=lambda row: row.prompt_id)
    if not rows:
        msg = f"'anchors.pools' must hold prompts; got none in {', '.join(pools)}. Choose other pools."
        raise AnchorError(msg)
    files, paths = read_conditions(workspace, settings.conditions)
    models = _load_models(workspace, config)
    initial = models.reader
    shards = []
    for start in range(0, len(rows), settings.prompts_per_shard):
        batch = _batch(rows[start : start + settings.prompts_per_shard], files, initial, config)
        progress("anchors", start, len(rows))
        shard = find_shard(workspace.anchor_cache, batch.key)
        if shard is None:
            shard = write_shard(workspace.anchor_cache, _make(batch, models, config))
        shards.append(shard)
    progress("anchors", len(rows), len(rows))
    outputs = put_together(workspace.anchors, shards, pool_of)
    keep_only(workspace.anchor_cache, shards)
    write_manifest(
        workspace.anchors / MANIFEST_NAME,
        workspace.root,
        kind="anchors",
        inputs=(*(workspace.pools / f"{pool}.parquet" for pool in pools), *paths),
        outputs=outputs,
        parents=(workspace.pools / MANIFEST_NAME, workspace.warmup / MANIFEST_NAME),
        parameters={
            "seed": config.seed,
            "sampling": config.sampling.model_dump(mode="json"),
            "anchors": settings.model_dump(mode="json"),
        },
        facts={
            "prompts": len(rows),
            "model_sha256": initial.digest,
            "template_sha256": digest_json(initial.tokenizer.chat_template),
            "conditions": {path.name: item.digest for path, item in zip(paths, files, strict=True)},
        },
    )


def _batch(
    rows: Sequence[PromptRow], files: Sequence[Conditions], initial: Pretrained, config: PipelineConfig
) -> _Batch:
    settings = config.anchors
    served = [conditions_for(row, files) for row in rows]
    plain = tuple(encode_rows(rows, initial.tokenizer))

    def encode(row: PromptRow, conditions: Conditions, stratum: Stratum, number: int) -> EncodedPrompt:
        messages = condition_prompt(
            conditions,
            row,
            get_suite(row.suite).render(row),
            stratum=stratum,
            number=number,
            seed=config.seed,
            use_reference=settings.use_references,
        )
        return EncodedPrompt(prompt_id=row.prompt_id, token_ids=encode_prompt(initial.tokenizer, messages))

    conditioned = {
        (stratum, number): tuple(encode(row, item, stratum, number) for row, item in zip(rows, served, strict=True))
        for stratum in STRATA
        for number in range(settings.count)
    }
    digests = tuple(item.digest for item in served)
    key = digest_json(
        {
            "format": _FORMAT,
            "model": initial.digest,
            "template": digest_json(initial.tokenizer.chat_template),
            "conditions": digests,
            "plain": [asdict(item) for item in plain],
            "conditioned": [[asdict(item) for item in group] for group in conditioned.values()],
            "seed": config.seed,
            "sampler": resolve_dtype(config.policy.sampler_dtype),
            "plan": asdict(plan_of(config, group_size=settings.queries)),
            "count": settings.count,
        }
    )
    return _Batch(tuple(rows), plain, conditioned, digests, key)


def _make(batch: _Batch, models: _Models, config: PipelineConfig) -> Shard:
    """Sample the queries and anchors of a shard, and represent each completion after its unconditioned prompt."""
    settings = config.anchors
    plain_ids = {item.prompt_id: item.token_ids for item in batch.plain}
    parts = [_sample(batch.plain, "anchors/query", settings.queries, models, config)]
    roles = ["query"] * len(parts[0])
    for stratum in STRATA:
        for rollouts in _sample_led(batch, stratum, models, config):
            # The pair (x, y) is represented without the condition, or the head would learn to read the condition.
            plain = replace(rollouts, prompt_token_ids_N=tuple(plain_ids[item] for item in rollouts.prompt_id_N))
            parts.append(plain)
            roles += [stratum] * len(plain)
    rollouts = join_rollouts(parts)
    digest_of = {row.prompt_id: item for row, item in zip(batch.rows, batch.condition_digests, strict=True)}
    return Shard(
        key=batch.key,
        rollouts=rollouts,
        role_N=tuple(roles),
        condition_N=tuple(digest_of[item] for item in rollouts.prompt_id_N),
        hidden_NH=mean_hidden(models.reader.model, rollouts),
    )


def _sample_led(batch: _Batch, stratum: Stratum, models: _Models, config: PipelineConfig) -> list[RolloutSet]:
    """Sample the anchors of one side; those that are asked alike are one group, whose prompt is read once."""
    groups: dict[tuple[str, tuple[int, ...]], list[EncodedPrompt]] = {}
    for number in range(config.anchors.count):
        for prompt in batch.conditioned[stratum, number]:
            groups.setdefault((prompt.prompt_id, prompt.token_ids), []).append(prompt)
    # The draws of a group are keyed by its purpose and prompt id, so that two groups of one prompt need two purposes.
    calls: dict[tuple[int, int], list[EncodedPrompt]] = {}
    seen: dict[str, int] = {}
    for same in groups.values():
        nth = seen[same[0].prompt_id] = seen.get(same[0].prompt_id, -1) + 1
        calls.setdefault((nth, len(same)), []).append(same[0])
    return [
        _sample(prompts, f"anchors/{stratum}/{nth}", size, models, config)
        for (nth, size), prompts in sorted(calls.items(), key=lambda item: item[0])
    ]


def _sample(
    prompts: Sequence[EncodedPrompt], purpose: str, group_size: int, models: _Models, config: PipelineConfig
) -> RolloutSet:
    engine = TransformersEngine(
        models.sampler.model,
        models.sampler.tokenizer,
        policy_version=0,
        prompts_per_batch=max(1, config.policy.prompts_per_batch * config.sampling.group_size // group_size),
    )
    plan = plan_of(config, group_size=group_size)
    return engine.generate(prompts, plan, run_seed=config.seed, iteration=0, purpose=purpose)


def metric_head(workspace: Workspace, config: PipelineConfig, progress: Progress) -> None:
    """Train the metric head on the anchors of all prompts but those kept for measuring; write `data/metric_head`."""
    made = load_anchors(workspace.anchors, skip_pools=UNTRAINED_POOLS)
    head, report = train_head(
        made,
        HeadSettings(**config.metric_head.model_dump()),
        seed=config.seed,
        progress=partial(progress, "train metric head"),
    )
    weights, about = workspace.metric_head / "head.safetensors", workspace.metric_head / "head.json"
    atomic_write(weights, head.to_bytes())
    write_json(about, {"shape": asdict(head.shape), "report": asdict(report)})
    write_manifest(
        workspace.metric_head / MANIFEST_NAME,
        workspace.root,
        kind="metric_head",
        inputs=(workspace.anchors / "index.parquet",),
        outputs={weights: None, about: None},
        parents=(workspace.anchors / MANIFEST_NAME,),
        parameters={"seed": config.seed, "metric_head": config.metric_head.model_dump(mode="json")},
        facts={
            "prompts": report.num_train,
            "held_out_prompts": report.num_held_out,
            "equal_prompts": report.num_equal,
            "best_epoch": report.best_epoch,
            "first_held_out_loss": report.held_out_by_epoch[0],
            "held_out_loss": report.held_out_by_epoch[report.best_epoch],
            "anchor_auc": report.anchor_auc,
        },
    )
