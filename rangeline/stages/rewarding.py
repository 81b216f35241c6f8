"""Give each reward source what it needs, and put what the sources say of one iteration's policy share together.

A source is asked for its own prompts only. What it keeps from iteration to iteration (thresholds, trajectories, cached
values) is the JSON state that it returns; it lies in the iteration's `reward_state.json`, so that a resumed run goes on
from the last complete iteration and an interrupted one starts from the same state again.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from rangeline.config import PipelineConfig
from rangeline.errors import ConfigError
from rangeline.judge.client import JudgeClient
from rangeline.policy.batch import TaughtRow
from rangeline.policy.processes import Policy
from rangeline.records import BoolArray, FloatArray, PromptRow, RewardIntervals, RolloutSet
from rangeline.rewards.source import assemble_intervals, take_intervals
from rangeline.rollout.pretrained import load_pretrained
from rangeline.rollout.selection import join_rollouts, take_rollouts
from rangeline.rollout.suffix_logprobs import SuffixRow, suffix_logprobs
from rangeline.stages.judging import FrozenJudge, Verdicts, open_judge, verify_rollouts
from rangeline.stages.progress import Progress, silent
from rangeline.stages.reward_plan import RewardPlan
from rangeline.stages.sampling_server import SamplingServer
from rangeline.stages.workspace import Workspace, model_cache


class RewardModels:
    """Models that sources may read; each is loaded when first asked for, and once.

    Parameters
    ----------
    workspace, config
        Where and how.
    worker
        The resident policy.
    server
        A vLLM server that scores references in the policy's place; None lets the policy score them.
    """

    def __init__(
        self, workspace: Workspace, config: PipelineConfig, worker: Policy, *, server: SamplingServer | None = None
    ) -> None:
        self._workspace, self._config = workspace, config
        self.worker = worker
        self._server = server

    def policy_logprobs(self, rows: Sequence[SuffixRow], *, share_prefix: bool) -> list[FloatArray | None]:
        """Return the log-probability of each row's scored tokens under the present policy, as `suffix_logprobs` does.

        Raises
        ------
        RolloutError
            When a server scores, and cannot be synced or fails.
        """
        if self._server is not None:
            return self._server.score(rows)
        budget = self._config.objective.micro_batch_tokens
        return suffix_logprobs(self.worker.model, rows, max_batch_tokens=budget, share_prefix=share_prefix)

    @cached_property
    def initial(self) -> Any:
        """The frozen policy that the run began with, float32, on the policy's device."""
        loaded = load_pretrained(
            str(self._workspace.warmup / "policy"),
            dtype="float32",
            trust_remote_code=self._config.policy.trust_remote_code,
            cache_dir=model_cache(),
        )
        return loaded.model.to(self.worker.model.device).requires_grad_(False)

    @cached_property
    def judge(self) -> JudgeClient:
        """The judge as a client that scores replies.

        Raises
        ------
        ConfigError
            When the judge is no model that could be asked.
        """
        trust = self._config.policy.trust_remote_code
        judge = open_judge(self._workspace, self._config.judge, trust_remote_code=trust)
        if not isinstance(judge, FrozenJudge):
            msg = (
                f"'judge.model' must be a model that replies to questions; got '{self._config.judge.model}'. Name one."
            )
            raise ConfigError(msg)
        return judge.client


Draw = Callable[[int, int], tuple[RolloutSet, Mapping[str, PromptRow]] | None]
"""Draws further prompts: (how many, how many were drawn so far) to rollouts and rows; None once there are none left."""


def draw_nothing(count: int, first: int) -> None:
    """Have no further prompts."""


def draw_nothing_for(source: str) -> Draw:
    """Have no further prompts for any source."""
    return draw_nothing


@dataclass(frozen=True, kw_only=True)
class RewardContext:
    """Everything that one source may use to score its rollouts of one iteration."""

    config: PipelineConfig
    workspace: Workspace
    number: int
    """Number of the iteration, from 1."""
    rollouts: RolloutSet
    """The source's own rollouts, whole groups."""
    rows: Mapping[str, PromptRow]
    models: RewardModels | None
    """None where only sources without a model are asked."""
    judged: RewardIntervals | None = None
    """The judge's calibrated intervals of these rollouts; None unless the source needs the judge."""
    state: Mapping[str, Any] = field(default_factory=dict)
    """What the source left at the iteration before; empty at the first."""
    draw: Draw = draw_nothing
    progress: Progress = silent

    @cached_property
    def verdicts(self) -> Verdicts:
        """What the suites say: extracted answers, and the truth of labelled prompts."""
        return verify_rollouts(self.rollouts, self.rows)

    @property
    def worker(self) -> Policy:
        """The resident policy."""
        return self.require_models().worker

    def require_judged(self) -> RewardIntervals:
        """Return the judge's intervals.

        Raises
        ------
        ConfigError
            When there are none: the source's facts do not say that it needs the judge.
        """
        if self.judged is None:
            msg = f"Judge intervals of iteration {self.number} must be there; got none. Let the source need the judge."
            raise ConfigError(msg)
        return self.judged

    def require_models(self) -> RewardModels:
        """Return the models.

        Raises
        ------
        ConfigError
            When there are none: a source that reads a model was asked outside a training session.
        """
        if self.models is None:
            msg = f"Reward source of iteration {self.number} must have models to read; got none. Open a session."
            raise ConfigError(msg)
        return self.models


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Scored:
    """What a source says of its rollouts."""

    intervals: RewardIntervals
    """Row for row with `rollouts` where these are given, else with the context's rollouts."""
    state: Mapping[str, Any] = field(default_factory=dict)
    """JSON values for the next iteration."""
    facts: Mapping[str, float | int | str | None] = field(default_factory=dict)
    """Numbers of this iteration, logged as `reward/<name>`; None where not defined."""
    kept_N: BoolArray | None = None
    """False for rollouts that leave the batch altogether; None keeps all."""
    trained_tokens_N: tuple[int, ...] | None = None
    """Leading completion tokens that carry the policy gradient; None means all of them."""
    taught: tuple[TaughtRow, ...] = ()
    """Texts to learn beside the policy gradient."""
    rollouts: RolloutSet | None = None
    """All rollouts scored, where the source drew more than it was given."""
    rows: Mapping[str, PromptRow] = field(default_factory=dict)
    """Rows of the prompts that it drew."""


class Scorer(Protocol):
    """A reward source as the stage calls it."""

    def __call__(self, context: RewardContext) -> Scored:
        """Score the context's rollouts."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RewardedShare:
    """The policy share of one iteration with the rewards of all its sources."""

    rollouts: RolloutSet
    intervals: RewardIntervals
    source_N: tuple[str, ...]
    domain_N: tuple[str, ...]
    kept_N: BoolArray
    trained_tokens_N: tuple[int, ...]
    taught: tuple[TaughtRow, ...]
    state: Mapping[str, Mapping[str, Any]]
    facts: Mapping[str, float | int | str | None]


def reward_share(
    plan: RewardPlan,
    scorers: Mapping[str, Scorer],
    context: RewardContext,
    states: Mapping[str, Mapping[str, Any]],
    *,
    draw_for: Callable[[str], Draw] = draw_nothing_for,
) -> RewardedShare:
    """Ask each source for its own prompts, and put the answers together row for row.

    Parameters
    ----------
    plan
        Which source scores which prompt.
    scorers
        Every source by name.
    context
        Of the whole policy share; `judged`, where given, covers all of it.
    states
        What each source left at the iteration before.
    draw_for
        Gives a source, by its name, what draws further prompts of its own.

    Returns
    -------
    RewardedShare
        The context's rollouts in their order, then what sources drew beyond them.
    """
    rollouts = context.rollouts
    owner_N = [plan.source_of(context.rows[prompt_id]) for prompt_id in rollouts.prompt_id_N]
    new_states = {name: dict(state) for name, state in states.items() if name in plan.names}
    parts, sets = [], [rollouts]
    facts: dict[str, float | int | str | None] = {}
    kept: dict[int, bool] = {}
    trained: dict[int, int] = {}
    taught: list[TaughtRow] = []
    rows = dict(context.rows)
    source_N = list(owner_N)
    for name in dict.fromkeys(owner_N):
        index = [i for i, owner in enumerate(owner_N) if owner == name]
        own = replace(_context_of(context, index, new_states.get(name, {})), draw=draw_for(name))
        scored = scorers[name](own)
        if scored.rollouts is not None:
            extra = take_rollouts(scored.rollouts, range(len(index), len(scored.rollouts)))
            index = [*index, *range(len(source_N), len(source_N) + len(extra))]
            source_N += [name] * len(extra)
            sets.append(extra)
        parts.append((index, scored.intervals))
        for i, row in enumerate(index):
            kept[row] = True if scored.kept_N is None else bool(scored.kept_N[i])
            if scored.trained_tokens_N is not None:
                trained[row] = scored.trained_tokens_N[i]
        taught += scored.taught
        rows |= scored.rows
        if scored.state:
            new_states[name] = dict(scored.state)
        # By the plan, not by who had a prompt today: a number keeps its name over the iterations.
        prefix = f"{name}/" if len(plan.names) > 1 else ""
        facts |= {f"{prefix}{key}": value for key, value in scored.facts.items()}
    whole = join_rollouts(sets)
    return RewardedShare(
        rollouts=whole,
        intervals=assemble_intervals(whole.prompt_id_N, parts),
        source_N=tuple(source_N),
        domain_N=tuple(rows[prompt_id].domain for prompt_id in whole.prompt_id_N),
        kept_N=np.array([kept[i] for i in range(len(whole))], dtype=bool),
        trained_tokens_N=tuple(trained.get(i, len(ids)) for i, ids in enumerate(whole.token_ids_N)),
        taught=tuple(taught),
        state=new_states,
        facts=facts,
    )


def _context_of(context: RewardContext, index: Sequence[int], state: Mapping[str, Any]) -> RewardContext:
    chosen = take_rollouts(context.rollouts, index)
    judged = None if context.judged is None else take_intervals(context.judged, index)
    return replace(context, rollouts=chosen, judged=judged, state=state)
