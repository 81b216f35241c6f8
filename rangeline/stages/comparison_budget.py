"""One budget of rollouts for methods that take their rewards from different sources.

Computes how many prompts a source may draw so that each run draws as many rollouts: those that the density ratio needs
are counted, and a source that needs none draws as many more of the policy share; one greedy completion a prompt counts
as one rollout. What lies before a run (calibration, anchors) is made once for a seed, whatever the number of
iterations; it is counted apart and not made equal.
"""

import pyarrow.parquet as pq

from rangeline.config import PipelineConfig, TrainConfig
from rangeline.errors import ConfigError
from rangeline.lineage import MANIFEST_NAME, read_manifest
from rangeline.rewards.registry import source_facts
from rangeline.stages.reward_plan import plan_rewards
from rangeline.stages.workspace import Workspace


def with_equal_budget(config: PipelineConfig, shared: TrainConfig) -> PipelineConfig:
    """Return a method's settings at the rollouts of an iteration that all methods share.

    ``(prompts_per_iteration + labelled_prompts + ratio_prompts) * group_size`` is shared; a method's labelled prompts
    and, where it asks a judge, its ratio prompts are taken off, and the rest are its policy prompts: whole groups, or
    single completions where texts are learned.

    Parameters
    ----------
    config
        The method's settings.
    shared
        Those of training that all methods begin from.

    Returns
    -------
    PipelineConfig
        With its own `train.prompts_per_iteration`. Labelled prompts are not mixed in where all prompts are labelled or
        texts are learned.

    Raises
    ------
    ConfigError
        The labelled prompts leave none for the policy share, or settings do not go together.

    Notes
    -----
    What stays unequal is only counted: what replaces filtered prompts, and pools with fewer prompts than asked for.
    """
    facts, train = source_facts(config.reward.source), config.train
    if facts.is_supervised or facts.needs_references:
        train = train.model_copy(update={"labelled_prompts": 0})
        config = config.model_copy(update={"train": train})
    drawn = train.labelled_prompts + (train.ratio_prompts if plan_rewards(config).needs_judge else 0)
    left = shared.prompts_per_iteration + shared.labelled_prompts + shared.ratio_prompts - drawn
    if left < 1:
        msg = (
            f"'train.labelled_prompts' must leave policy prompts in the shared budget; got {train.labelled_prompts} "
            f"(reward.source '{config.reward.source}'). Take fewer of them, or more train.prompts_per_iteration."
        )
        raise ConfigError(msg)
    prompts = left * config.sampling.group_size if facts.is_supervised else left
    return config.model_copy(update={"train": train.model_copy(update={"prompts_per_iteration": prompts})})


def rollouts_before(workspace: Workspace, stages: tuple[str, ...]) -> dict[str, int]:
    """Return the rollouts that stages made before any run, by what they are for.

    Parameters
    ----------
    workspace
        A seed's.
    stages
        Stages that a run's reward sources need.

    Returns
    -------
    dict
        `calibration`: of the source and the calibration pool. `anchors`: conditioned ones, and those the metric head
        is trained on. Empty where none was needed.
    """
    counts = {}
    if "calibration" in stages:
        pools = ("source", "calibration")
        counts["calibration"] = sum(
            int(pq.read_metadata(workspace.calibration / f"{pool}_rollouts.parquet").num_rows) for pool in pools
        )
    if "anchors" in stages:
        made = read_manifest(workspace.anchors / MANIFEST_NAME)
        asked = made.parameters["anchors"]
        counts["anchors"] = int(made.facts["prompts"]) * (2 * int(asked["count"]) + int(asked["queries"]))
    return counts
