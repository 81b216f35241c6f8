"""Warm-up stage: supervised training of the starting policy on the labelled warm-up pool."""

from typing import cast

from rangeline.config import PipelineConfig
from rangeline.lineage import MANIFEST_NAME, write_manifest
from rangeline.policy.supervised import SupervisedRow
from rangeline.policy.trainer import UpdateSettings
from rangeline.policy.worker import PolicyWorker, SamplerDtype
from rangeline.rollout.pretrained import encode_prompt, encode_target, resolve_dtype
from rangeline.seeds import stream
from rangeline.stages.data import read_pool
from rangeline.stages.progress import Progress
from rangeline.stages.workspace import Workspace, model_cache
from rangeline.suites.registry import get_suite


def load_worker(config: PipelineConfig, name: str, *, learning_rate: float | None = None) -> PolicyWorker:
    """Load a policy by name or folder, ready to sample and to be updated."""
    objective, policy = config.objective, config.policy
    precision = resolve_dtype(policy.precision)
    return PolicyWorker.load(
        name,
        settings=UpdateSettings(
            **objective.model_dump(exclude={"learning_rate"}),
            learning_rate=learning_rate or objective.learning_rate,
            temperature=config.sampling.temperature,
            mixed_precision="bf16" if precision == "bfloat16" else "no",
        ),
        sampler_dtype=cast(SamplerDtype, resolve_dtype(policy.sampler_dtype)),
        prompts_per_batch=policy.prompts_per_batch,
        trust_remote_code=policy.trust_remote_code,
        cache_dir=model_cache(),
        seed=config.seed,
    )


def warmup(workspace: Workspace, config: PipelineConfig, progress: Progress) -> None:
    """Train the policy on the references of the warm-up pool, one answer a prompt; write `models/warmup`."""
    settings = config.warmup
    rows = read_pool(workspace, "warmup")
    worker = load_worker(config, config.policy.model, learning_rate=settings.learning_rate)
    examples = []
    for row in rows:
        suite = get_suite(row.suite)
        prompt_ids = encode_prompt(worker.tokenizer, suite.render(row))
        target_ids = encode_target(worker.tokenizer, suite.render_reference(row))
        examples.append(SupervisedRow(prompt_ids=prompt_ids, target_ids=target_ids))
    steps_an_epoch = -(-len(examples) // settings.batch_size) if examples else 0
    losses = []
    for epoch in range(settings.epochs):
        order = stream(config.seed, "warmup", epoch).permutation(len(examples))
        for step in range(steps_an_epoch):
            chosen = order[step * settings.batch_size : (step + 1) * settings.batch_size]
            report = worker.supervised_step([examples[i] for i in chosen])
            losses.append(report.loss)
            progress("warm up", epoch * steps_an_epoch + step + 1, settings.epochs * steps_an_epoch)
    folder = workspace.warmup / "policy"
    worker.model.save_pretrained(folder)
    worker.tokenizer.save_pretrained(folder)
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
        facts={
            "base_model": config.policy.model,
            "base_sha256": worker.model_digest,
            "steps": len(losses),
            "first_loss": losses[0] if losses else None,
            "last_loss": losses[-1] if losses else None,
        },
    )
