"""Which reward source scores which prompt, and from which pool: read off the settings, before anything is sampled."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rangeline.config import PipelineConfig
from rangeline.errors import ConfigError, PoolError
from rangeline.records import PromptRow
from rangeline.reward_config import RewardConfig
from rangeline.rewards.registry import source_facts, stages_needed
from rangeline.suites.registry import asks_for_answer_alone


@dataclass(frozen=True, slots=True)
class RewardPlan:
    """Which source scores which prompt, and from which pool the policy share is drawn."""

    source: str
    labelled_source: str | None
    """Source of the labelled prompts that are mixed in; None where none are."""
    domains: Mapping[str, str]
    pool: str

    @property
    def names(self) -> tuple[str, ...]:
        """Every source that may be asked."""
        labelled = [] if self.labelled_source is None else [self.labelled_source]
        return tuple(dict.fromkeys([self.source, *labelled, *self.domains.values()]))

    @property
    def needs_judge(self) -> bool:
        """True where some source needs judgment states; only then is coverage measured."""
        return any(source_facts(name).needs_judge for name in self.names)

    @property
    def bounds_rewards(self) -> bool:
        """True where some reward is an interval with a width; elsewhere there is nothing to choose an estimator by."""
        return any(source_facts(name).gives_widths for name in self.names)

    @property
    def is_supervised(self) -> bool:
        """True where texts are learned and nothing is rewarded."""
        return source_facts(self.source).is_supervised

    @property
    def stages(self) -> tuple[str, ...]:
        """Versioned stages that must be made before training."""
        return stages_needed(self.names)

    def source_of(self, row: PromptRow) -> str:
        """Return the source of one prompt."""
        if row.domain in self.domains:
            return self.domains[row.domain]
        return self.source if self.labelled_source is None or row.reference is None else self.labelled_source

    def usable(self, rows: Sequence[PromptRow], pool: str = "") -> tuple[PromptRow, ...]:
        """Return the prompts that their source can score: with a reference, or asked for reasoning, where it needs it.

        Raises
        ------
        PoolError
            When there is none in the pool, by default that of the policy share.
        """
        facts = {name: source_facts(name) for name in self.names}
        kept = tuple(r for r in rows if r.reference is not None or not facts[self.source_of(r)].needs_references)
        if not kept:
            msg = (
                f"Pool '{pool or self.pool}' must hold prompts with a reference for reward source '{self.source}'; got "
                f"none of {len(rows)}. Set reward.prompts=warmup to train on labelled prompts, or take another source."
            )
            raise PoolError(msg)
        reasoned = tuple(r for r in kept if not (facts[self.source_of(r)].needs_reasoning and asks_for_answer_alone(r)))
        if not reasoned:
            msg = (
                f"Reward source '{self.source_of(kept[0])}' must have prompts that are answered with reasoning; got "
                f"{len(kept)} of pool '{pool or self.pool}' that ask for the answer alone. Run the same command with "
                "--config configs/reasoning.yaml, which asks generated problems to be worked out (data.reply)."
            )
            raise PoolError(msg)
        return reasoned


def require_domains(reward: RewardConfig, rows: Iterable[PromptRow]) -> None:
    """Refuse domains that no prompt to train on has: a name that was misspelt would change nothing, and say nothing.

    Raises
    ------
    ConfigError
        When the settings name one.
    """
    known = {row.domain for row in rows}
    for setting, names in (("domains", reward.domains), ("domain_weights", reward.domain_weights)):
        if odd := sorted(set(names) - known):
            msg = (
                f"'reward.{setting}' must name domains of prompts to train on, {', '.join(sorted(known))}; got "
                f"'{odd[0]}'. Correct it, or leave it out."
            )
            raise ConfigError(msg)


def plan_rewards(config: PipelineConfig) -> RewardPlan:
    """Return who scores what, from the settings.

    Raises
    ------
    ConfigError
        When the settings do not go together.
    """
    reward, mixed = config.reward, config.train.labelled_prompts
    needs_references = source_facts(reward.source).needs_references
    pool = ("warmup" if needs_references else "policy") if reward.prompts == "auto" else reward.prompts
    if mixed and pool == "warmup":
        msg = (
            f"'train.labelled_prompts' must be 0 where the policy share is drawn from labelled prompts; got {mixed} "
            f"(reward.source '{reward.source}', reward.prompts '{reward.prompts}'). Set one of the two."
        )
        raise ConfigError(msg)
    if reward.source == "trapo" and not mixed:
        msg = "'train.labelled_prompts' must be positive for reward source 'trapo'; got 0. Set how many it compares to."
        raise ConfigError(msg)
    labelled = reward.labelled_source if mixed and reward.source != "trapo" else None
    plan = RewardPlan(reward.source, labelled, dict(reward.domains), pool)
    if len(plan.names) > 1 and (odd := [name for name in plan.names if source_facts(name).is_supervised]):
        msg = f"Reward source '{odd[0]}' must stand alone, since it samples otherwise; got {', '.join(plan.names)}."
        raise ConfigError(msg)
    return plan
