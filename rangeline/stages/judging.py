"""What every stage needs around a rollout: the judge with its cache, the suites' verdicts, and the sampling engine."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Protocol

import numpy as np

from rangeline.config import PipelineConfig
from rangeline.judge.cache import VerdictCache
from rangeline.judge.client import JudgeClient
from rangeline.judge.judgment import Limits, judge_digest, judge_rollouts, require_answerable, shown
from rangeline.judge.rubric import Rubric
from rangeline.judge.synthetic import SyntheticJudge
from rangeline.judge_config import JudgeConfig
from rangeline.prompts.duplicates import text_of
from rangeline.records import UNKNOWN, BoolArray, FloatArray, JudgmentTable, PromptRow, RolloutSet, SamplingPlan
from rangeline.rollout.engine import EncodedPrompt
from rangeline.rollout.pretrained import Pretrained, encode_prompt, load_pretrained
from rangeline.rollout.selection import take_rollouts
from rangeline.rollout.transformers_engine import TransformersEngine
from rangeline.stages.data import read_world
from rangeline.stages.judge_clients import (
    open_client,
    read_rubric,
    read_verdicts,
    to_accelerator,
    verdict_store,
)
from rangeline.stages.progress import Progress
from rangeline.stages.quarantine import spread, without
from rangeline.stages.workspace import Workspace, model_cache
from rangeline.suites.base import training_reward
from rangeline.suites.candidate_choice import candidates_of
from rangeline.suites.registry import get_suite


@dataclass(frozen=True, slots=True)
class Verdicts:
    """What the suites say of N rollouts."""

    extracted_N: tuple[str | None, ...]
    truth_N: FloatArray
    """Reward by the reference; NaN on unlabelled prompts and where no verdict could be made."""
    reason_N: tuple[str, ...]
    unscorable_N: BoolArray
    """True where nobody could give a reward: cut off before an answer, or several answers. Missing, never 0."""

    def take(self, rows: Sequence[int]) -> "Verdicts":
        """Return what is said of some rows, in their order."""
        return Verdicts(
            tuple(self.extracted_N[i] for i in rows),
            self.truth_N[list(rows)],
            tuple(self.reason_N[i] for i in rows),
            self.unscorable_N[list(rows)],
        )


class Judge(Protocol):
    """What maps rollouts to judgment states, whatever stands behind it."""

    @property
    def rubric(self) -> Rubric:
        """Return the questions."""

    @property
    def model_digest(self) -> str:
        """Return the identity of who answers them."""

    @property
    def digest(self) -> str:
        """Return the identity of both together, as judgment tables carry it."""

    def states(
        self, rollouts: RolloutSet, rows: Mapping[str, PromptRow], verdicts: Verdicts, progress: Progress, label: str
    ) -> JudgmentTable:
        """Return the judgment state of every rollout."""


@dataclass(frozen=True, slots=True)
class FrozenJudge:
    """A model as judge, ready to ask: rubric, client, cache."""

    rubric: Rubric
    client: JudgeClient
    cache: VerdictCache
    limits: Limits

    @property
    def model_digest(self) -> str:
        """Identity of the model."""
        return self.client.digest

    @property
    def digest(self) -> str:
        """Identity of model and rubric together."""
        return judge_digest(self.client, self.rubric)

    def states(
        self, rollouts: RolloutSet, rows: Mapping[str, PromptRow], verdicts: Verdicts, progress: Progress, label: str
    ) -> JudgmentTable:
        """Ask the model what is not in the cache."""
        return judge_rollouts(
            rollouts,
            prompt_text={prompt_id: text_of(rows[prompt_id]) for prompt_id in set(rollouts.prompt_id_N)},
            extracted_N=verdicts.extracted_N,
            rubric=self.rubric,
            judge=self.client,
            cache=self.cache,
            limits=self.limits,
            progress=partial(progress, label),
        )

    def shown(
        self, rollouts: RolloutSet, rows: Mapping[str, PromptRow], verdicts: Verdicts
    ) -> list[tuple[str, str, str]]:
        """Return what the judge may see of each rollout."""
        texts = {prompt_id: text_of(rows[prompt_id]) for prompt_id in set(rollouts.prompt_id_N)}
        return shown(rollouts, texts, verdicts.extracted_N)


@dataclass(frozen=True, slots=True)
class WorldJudge:
    """The synthetic judge of a workspace's world."""

    judge: SyntheticJudge

    @property
    def rubric(self) -> Rubric:
        """The coordinates it fills."""
        return self.judge.rubric

    @property
    def model_digest(self) -> str:
        """Identity of the world it looks into."""
        return self.judge.world.digest

    @property
    def digest(self) -> str:
        """Identity of world and rubric together."""
        return self.judge.digest

    def states(
        self, rollouts: RolloutSet, rows: Mapping[str, PromptRow], verdicts: Verdicts, progress: Progress, label: str
    ) -> JudgmentTable:
        """Look the chosen words up."""
        candidates = {prompt_id: candidates_of(rows[prompt_id]) for prompt_id in set(rollouts.prompt_id_N)}
        table = self.judge.judge(rollouts, candidates=candidates, extracted_N=verdicts.extracted_N)
        progress(label, len(rollouts), len(rollouts))
        return table


def load_sampler(config: PipelineConfig, folder: Path) -> tuple[Pretrained, TransformersEngine]:
    """Load a policy folder for sampling only, in the sampler's precision."""
    policy = load_pretrained(
        str(folder),
        dtype=config.policy.sampler_dtype,
        trust_remote_code=config.policy.trust_remote_code,
        cache_dir=model_cache(),
    )
    model = to_accelerator(policy.model)
    batch = config.policy.prompts_per_batch
    return policy, TransformersEngine(model, policy.tokenizer, policy_version=0, prompts_per_batch=batch)


def plan_of(config: PipelineConfig, *, group_size: int | None = None) -> SamplingPlan:
    """Return the sampling plan that calibration, training and audit share."""
    sampling = config.sampling
    return SamplingPlan(
        group_size=group_size or sampling.group_size,
        temperature=sampling.temperature,
        max_tokens=sampling.max_tokens,
    )


def encode_rows(rows: Sequence[PromptRow], tokenizer: object) -> list[EncodedPrompt]:
    """Render each prompt by its suite and encode it."""
    return [
        EncodedPrompt(prompt_id=row.prompt_id, token_ids=encode_prompt(tokenizer, get_suite(row.suite).render(row)))
        for row in rows
    ]


def verify_rollouts(rollouts: RolloutSet, rows: Mapping[str, PromptRow]) -> Verdicts:
    """Extract every answer, and verify those of labelled prompts."""
    extracted: list[str | None] = []
    truth, reasons = np.full(len(rollouts), np.nan), []
    unscorable = np.zeros(len(rollouts), dtype=bool)
    suites = {name: get_suite(name) for name in {rows[prompt_id].suite for prompt_id in set(rollouts.prompt_id_N)}}
    for i, prompt_id in enumerate(rollouts.prompt_id_N):
        row = rows[prompt_id]
        suite = suites[row.suite]
        completion = rollouts.completion_N[i]
        truncated = rollouts.finish_reason_N[i] == "length"
        extraction = suite.extract(completion, row, truncated=truncated)
        answer = extraction.value if extraction.status == "found" else None
        extracted.append(None if answer is None else suite.canonical(answer))
        unscorable[i] = extraction.status == "ambiguous" or (truncated and answer is None)
        if row.reference is None:
            reasons.append("unlabelled")
            continue
        verdict = suite.verify(completion, row, truncated=truncated)
        reasons.append(verdict.reason)
        reward = training_reward(verdict)
        if reward is not None:
            truth[i] = reward
    return Verdicts(tuple(extracted), truth, tuple(reasons), unscorable)


def open_judge(workspace: Workspace, config: JudgeConfig, *, trust_remote_code: bool = False) -> Judge:
    """Load the rubric and the judge: a client with its verdict cache, or the synthetic judge of the world.

    Raises
    ------
    ModelLoadError
        When the rubric file or the model cannot be read.
    ConfigError
        When a synthetic judge has no world, or a rubric that it cannot fill.
    JudgeError
        When the server cannot be asked, or the judge cannot answer the rubric.
    """
    rubric = read_rubric(workspace.root / config.rubric, config.rubric)
    if config.is_synthetic:
        return WorldJudge(SyntheticJudge(read_world(workspace), rubric))
    client = open_client(workspace, config, trust_remote_code=trust_remote_code)
    require_answerable(rubric, client)
    cache = VerdictCache(verdict_store(workspace, config))
    cache.put_many(read_verdicts(workspace.calibration))
    return FrozenJudge(rubric, client, cache, Limits(config.max_missing_share, config.limits.unknown_share))


def judge_all(
    judge: Judge,
    rollouts: RolloutSet,
    rows: Mapping[str, PromptRow],
    verdicts: Verdicts,
    progress: Progress,
    label: str,
    *,
    quarantine: Collection[str] = (),
) -> JudgmentTable:
    """Map every rollout to its judgment state; what nobody could score is missing, whatever the judge says.

    Rollouts of prompts in `quarantine` are missing unasked.
    """
    kept_N = without(rollouts, quarantine)
    if kept_N.all():
        table = judge.states(rollouts, rows, verdicts, progress, label)
    else:
        kept = np.flatnonzero(kept_N).tolist()
        asked = judge.states(take_rollouts(rollouts, kept), rows, verdicts.take(kept), progress, label)
        table = spread(asked, rollouts, kept_N)
    missing_N = table.missing_N | verdicts.unscorable_N
    levels_NK = np.where(missing_N[:, None], UNKNOWN, table.levels_NK)
    return replace(table, missing_N=missing_N, levels_NK=levels_NK)
