"""Every reward source as the reward stage calls it: from a context to what the source says of its rollouts."""

import math
from collections.abc import Mapping
from types import MappingProxyType

from rangeline.rewards.verifiable import verifier_intervals
from rangeline.stages.rewarding import RewardContext, Scored, Scorer


def score_by_judge(context: RewardContext) -> Scored:
    """Take the judge's calibrated intervals as they are."""
    return Scored(intervals=context.require_judged())


def score_by_verifier(context: RewardContext) -> Scored:
    """Take the suites' verdicts as intervals of zero width."""
    rewards = [None if math.isnan(value) else float(value) for value in context.verdicts.truth_N]
    return Scored(intervals=verifier_intervals(context.rollouts.prompt_id_N, rewards))


SCORERS: Mapping[str, Scorer] = MappingProxyType(
    {
        "judge_interval": score_by_judge,
        "verifier": score_by_verifier,
    }
)
"""Every source by its name; the names are those of `rewards.registry.SOURCES`."""
