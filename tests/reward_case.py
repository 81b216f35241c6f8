"""Rollouts written by hand, with a tiny policy that can read them: what a reward source is given in a test."""

from dataclasses import replace
from pathlib import Path

from tiny import tiny_byte_model

from rangeline.config import PipelineConfig, merge
from rangeline.policy.trainer import UpdateSettings
from rangeline.policy.worker import PolicyWorker
from rangeline.records import PromptRow, RolloutSet
from rangeline.rollout.pretrained import Pretrained, encode_prompt
from rangeline.stages.rewarding import RewardContext, RewardModels
from rangeline.stages.workspace import Workspace
from rangeline.suites.registry import get_suite


def byte_worker(**settings):
    """Return a resident policy of bytes, and the frozen policy it began as."""
    model, tokenizer = tiny_byte_model()
    initial, _ = tiny_byte_model()
    chosen = UpdateSettings(**{"learning_rate": 1e-2, "max_grad_norm": 1e9, **settings})
    return PolicyWorker(Pretrained(model=model, tokenizer=tokenizer, digest="d", name="n"), settings=chosen), initial


def row(prompt_id="p", reference="7", *, prompt="3 + 4 = ?", suite="grade_school_math", **more):
    """Return one prompt row."""
    return PromptRow(prompt_id=prompt_id, prompt=prompt, suite=suite, reference=reference, **more)


def rollouts_of(worker, rows, completions, *, finish=None):
    """Return rollouts of (prompt id, completion) pairs, encoded as the policy writes them, closed by its end token."""
    by_id = {item.prompt_id: item for item in rows}
    tokenizer, seen, samples = worker.tokenizer, {}, []
    for prompt_id, _ in completions:
        samples.append(seen.setdefault(prompt_id, 0))
        seen[prompt_id] += 1
    finish = finish or ["stop"] * len(completions)
    ids = [
        (*tokenizer.encode(text, add_special_tokens=False), *([tokenizer.eos_token_id] if end == "stop" else []))
        for (_, text), end in zip(completions, finish, strict=True)
    ]
    return RolloutSet(
        prompt_id_N=tuple(prompt_id for prompt_id, _ in completions),
        sample_N=tuple(samples),
        completion_N=tuple(text for _, text in completions),
        prompt_token_ids_N=tuple(
            encode_prompt(tokenizer, get_suite(by_id[p].suite).render(by_id[p])) for p, _ in completions
        ),
        token_ids_N=tuple(ids),
        sampled_logprobs_N=tuple((-1.0,) * len(item) for item in ids),
        finish_reason_N=tuple(finish),
        policy_version=0,
    )


def context_of(rows, completions, *, worker=None, initial=None, finish=None, state=None, **over):
    """Return the context of rollouts written by hand; `over` are settings and further fields of the context."""
    if worker is None:
        worker, initial = byte_worker()
    fields = {name: over.pop(name) for name in ("number", "draw", "judged") if name in over}
    config = PipelineConfig.model_validate(merge({"sampling": {"max_tokens": 64}}, over))
    models = RewardModels(Workspace(Path()), config, worker)
    models.initial = initial  # loaded from a workspace otherwise
    context = RewardContext(
        config=config,
        workspace=Workspace(Path()),
        number=1,
        rollouts=rollouts_of(worker, rows, completions, finish=finish),
        rows={item.prompt_id: item for item in rows},
        models=models,
        state=state or {},
    )
    return replace(context, **fields)
