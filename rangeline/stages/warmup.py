"""Warm-up stage: supervised training of the starting policy, on references or on the form of an answer alone.

A policy that learns the form alone answers with any listed word, each alike: it stands for a pretrained model, and so
depends on the vocabulary and the warm-up settings, never on the seed or the hidden order of a world. It is made once
for them, in the model cache, and copied from there.
"""

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, cast

from rangeline.config import PipelineConfig, ScheduleConfig, WorldConfig
from rangeline.errors import ConfigError, PoolError
from rangeline.lineage import MANIFEST_NAME, digest_json, write_json, write_manifest
from rangeline.policy.supervised import ChoiceRow, SupervisedReport, SupervisedRow
from rangeline.policy.trainer import UpdateSettings
from rangeline.policy.worker import PolicyWorker, SamplerDtype
from rangeline.records import PromptRow
from rangeline.rollout.fresh_model import PREFIX, fresh_model
from rangeline.rollout.pretrained import (
    COMPLETE,
    encode_prompt,
    encode_target,
    folder_digest,
    put_in_place,
    resolve_dtype,
)
from rangeline.seeds import stream
from rangeline.stages.data import read_pool
from rangeline.stages.progress import Progress
from rangeline.stages.workspace import Workspace, model_cache
from rangeline.suites.candidate_choice import PROMPT_END, candidates_of
from rangeline.suites.candidate_words import WORDS
from rangeline.suites.candidate_world import SUITE, draw_lists
from rangeline.suites.registry import get_suite

_START_SEED = 0
"""Of random weights and of the lists that teach the form: the start is one for all runs."""
_RECIPE = 1
"""Version of how the form is taught; another number, another start."""
_RISING_STEPS = 100
_LAST_RATE = 0.02
"""Share of the learning rate at the end of teaching the form."""


def load_worker(config: PipelineConfig, name: str, *, learning_rate: float | None = None) -> PolicyWorker:
    """Load a policy by name or folder, ready to sample and to be updated."""
    policy = config.policy
    return PolicyWorker.load(
        name,
        settings=update_settings(config, learning_rate=learning_rate),
        sampler_dtype=cast(SamplerDtype, resolve_dtype(policy.sampler_dtype)),
        prompts_per_batch=policy.prompts_per_batch,
        trust_remote_code=policy.trust_remote_code,
        cache_dir=model_cache(),
        seed=config.seed,
    )


def update_settings(config: PipelineConfig, *, learning_rate: float | None = None) -> UpdateSettings:
    """Return how the policy is updated; a learning rate of one's own is constant, for the schedule is the run's."""
    objective = config.objective
    schedule, mismatch = objective.schedule, objective.mismatch
    if learning_rate is not None:
        schedule = ScheduleConfig()
    return UpdateSettings(
        **objective.model_dump(exclude={"learning_rate", "schedule", "mismatch"}),
        learning_rate=objective.learning_rate if learning_rate is None else learning_rate,
        schedule=schedule.kind,
        warmup_steps=schedule.warmup_steps,
        schedule_steps=schedule.steps,
        correction=mismatch.correction,
        correction_cap=mismatch.cap,
        max_mismatch=mismatch.limit,
        temperature=config.sampling.temperature,
        mixed_precision="bf16" if resolve_dtype(config.policy.precision) == "bfloat16" else "no",
    )


def base_model(config: PipelineConfig) -> str:
    """Return the name or folder of the untrained policy; a fresh one is made where it is not there yet.

    Raises
    ------
    ConfigError
        When a fresh policy has no world to take its words from.
    """
    policy = config.policy
    if not policy.model.startswith(PREFIX):
        return policy.model
    words = (*WORDS[: _world(config).words], PROMPT_END.strip())
    folder = fresh_model(policy.model, policy.architecture, words, seed=_START_SEED, cache_dir=model_cache())
    return str(folder)


def _world(config: PipelineConfig) -> WorldConfig:
    if config.data.world is None:
        msg = (
            f"'data.world' must be set where the policy is '{config.policy.model}' or warmup.teaches is "
            f"'{config.warmup.teaches}'; got none. Set it, or take a pretrained policy and references."
        )
        raise ConfigError(msg)
    return config.data.world


def _example(worker: PolicyWorker, row: PromptRow, answer: str) -> SupervisedRow:
    prompt_ids = encode_prompt(worker.tokenizer, get_suite(row.suite).render(row))
    return SupervisedRow(prompt_ids=prompt_ids, target_ids=encode_target(worker.tokenizer, answer))


def _labelled_rows(workspace: Workspace, config: PipelineConfig) -> tuple[PromptRow, ...]:
    rows = read_pool(workspace, "warmup")
    if config.warmup.epochs and not rows:
        msg = (
            "'warmup' pool must hold at least one prompt where warmup.teaches is references; got 0. Raise "
            "split.labelled.warmup, or set warmup.epochs=0."
        )
        raise PoolError(msg)
    return rows


def _reference_steps(
    config: PipelineConfig, worker: PolicyWorker, rows: Sequence[PromptRow], steps_an_epoch: int
) -> Iterator[SupervisedReport]:
    settings = config.warmup
    examples = [_example(worker, row, get_suite(row.suite).render_reference(row)) for row in rows]
    for epoch in range(settings.epochs):
        order = stream(config.seed, "warmup", epoch).permutation(len(examples))
        for step in range(steps_an_epoch):
            chosen = order[step * settings.batch_size : (step + 1) * settings.batch_size]
            yield worker.supervised_step([examples[i] for i in chosen])


def _format_steps(config: PipelineConfig, worker: PolicyWorker) -> Iterator[SupervisedReport]:
    """Teach the policy to answer with any listed word; the learning rate rises, then falls linearly."""
    settings, world = config.warmup, _world(config)
    words = WORDS[: world.words]
    tokens = {word: encode_target(worker.tokenizer, word)[:-1] for word in words}
    single = all(len(ids) == 1 for ids in tokens.values())
    rng = stream(_START_SEED, "warmup", "format")
    lists = draw_lists(words, world.candidates, rng)
    for step in range(settings.steps):
        rate = settings.learning_rate * min((step + 1) / _RISING_STEPS, max(1 - step / settings.steps, _LAST_RATE))
        rows = [
            PromptRow(prompt_id="format", prompt=" ".join(listed), suite=SUITE)
            for listed in islice(lists, settings.batch_size)
        ]
        if single:
            yield worker.choice_step([_choices(worker, row, tokens) for row in rows], learning_rate=rate)
        else:
            # Words of several tokens share no next token: one listed word a row stands for all of them.
            drawn = [candidates_of(row)[int(rng.integers(world.candidates))] for row in rows]
            examples = [_example(worker, row, word) for row, word in zip(rows, drawn, strict=True)]
            yield worker.supervised_step(examples, learning_rate=rate)


def _choices(worker: PolicyWorker, row: PromptRow, tokens: Mapping[str, tuple[int, ...]]) -> ChoiceRow:
    prompt_ids = encode_prompt(worker.tokenizer, get_suite(row.suite).render(row))
    return ChoiceRow(prompt_ids=prompt_ids, choice_ids=tuple(tokens[word][0] for word in candidates_of(row)))


def _facts(worker: PolicyWorker, reports: Iterator[SupervisedReport], steps: int, progress: Progress) -> dict[str, Any]:
    losses = []
    for report in reports:
        losses.append(report.loss)
        progress("warm up", len(losses), steps)
    return {
        "base_sha256": worker.model_digest,
        "steps": len(losses),
        "first_loss": losses[0] if losses else None,
        "last_loss": losses[-1] if losses else None,
    }


def _save(worker: PolicyWorker, folder: Path) -> None:
    worker.model.save_pretrained(folder)
    worker.tokenizer.save_pretrained(folder)


def _warm_start(config: PipelineConfig, progress: Progress) -> Path:
    """Return the cached folder of a policy that knows the form of an answer."""
    base = base_model(config)
    settings = config.warmup.model_dump(mode="json", include={"steps", "learning_rate", "batch_size"})
    world = _world(config).model_dump(include={"words", "candidates"})
    policy = config.policy.model_dump(mode="json", exclude={"prompts_per_batch", "sampler_dtype"})
    precision = resolve_dtype(config.policy.precision)
    key = digest_json([_RECIPE, settings, world, policy, precision, config.objective.max_grad_norm, _base_key(base)])
    target = model_cache() / f"warm-{key[:16]}"
    if not (target / COMPLETE).is_file():
        worker = load_worker(config, base, learning_rate=config.warmup.learning_rate)
        facts = _facts(worker, _format_steps(config, worker), config.warmup.steps, progress)
        with tempfile.TemporaryDirectory(prefix=".warming-", dir=model_cache()) as temporary:
            folder = Path(temporary) / target.name
            _save(worker, folder / "policy")
            write_json(folder / "facts.json", facts)
            (folder / COMPLETE).touch()
            put_in_place(folder, target)
    return target


def _base_key(base: str) -> str:
    return folder_digest(Path(base)) if Path(base).is_dir() else base


def warmup(workspace: Workspace, config: PipelineConfig, progress: Progress) -> None:
    """Train the policy on the references of the warm-up pool or on the form of an answer; write `models/warmup`."""
    settings = config.warmup
    folder = workspace.warmup / "policy"
    if settings.teaches == "format":
        start = _warm_start(config, progress)
        shutil.copytree(start / "policy", folder, dirs_exist_ok=True)
        facts = json.loads((start / "facts.json").read_text(encoding="utf-8"))
    else:
        rows = _labelled_rows(workspace, config)  # before a model is loaded in vain
        worker = load_worker(config, base_model(config), learning_rate=settings.learning_rate)
        steps = -(-len(rows) // settings.batch_size)
        reports = _reference_steps(config, worker, rows, steps)
        facts = _facts(worker, reports, settings.epochs * steps, progress)
        _save(worker, folder)
    write_manifest(
        workspace.warmup / MANIFEST_NAME,
        workspace.root,
        kind="warmup",
        inputs=(workspace.pools / "warmup.parquet",),
        outputs={path: None for path in sorted(folder.iterdir())},
        parents=(workspace.pools / MANIFEST_NAME,),
        parameters={
            "seed": config.seed,
            "policy": config.policy.model_dump(mode="json"),
            "warmup": settings.model_dump(mode="json"),
        },
        facts={"base_model": config.policy.model, **facts},
    )
