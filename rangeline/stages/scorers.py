"""Every reward source as the reward stage calls it: from a context to what the source says of its rollouts."""

import math
from collections.abc import Mapping
from functools import partial
from types import MappingProxyType

import numpy as np

from rangeline.policy.batch import TaughtRow
from rangeline.prompts.duplicates import text_of
from rangeline.records import FloatArray
from rangeline.rewards.interval_peers import student_t_intervals, variance_aware_intervals
from rangeline.rewards.majority import majority_intervals
from rangeline.rewards.self_supervised import Measure, self_supervised_intervals
from rangeline.rewards.source import assemble_intervals, missing_intervals, take_intervals
from rangeline.rewards.trajectory_selection import extended, pass_rates, select, similarity
from rangeline.rewards.verifiable import verifier_intervals
from rangeline.rewards.verifier_model import Comparison, verifier_model_intervals
from rangeline.rollout.pretrained import encode_target
from rangeline.rollout.suffix_logprobs import SuffixRow, suffix_statistics
from rangeline.seeds import stream
from rangeline.stages.anchor_rewards import score_by_anchor_contrast
from rangeline.stages.reference_rewards import references_of, score_by_reference_probability, score_by_verifree
from rangeline.stages.rewarding import RewardContext, Scored, Scorer
from rangeline.suites.registry import get_suite


def score_by_judge(context: RewardContext) -> Scored:
    """Take the judge's calibrated intervals as they are."""
    return Scored(intervals=context.require_judged())


def score_by_verifier(context: RewardContext) -> Scored:
    """Take the suites' verdicts as intervals of zero width."""
    rewards = [None if math.isnan(value) else float(value) for value in context.verdicts.truth_N]
    return Scored(intervals=verifier_intervals(context.rollouts.prompt_id_N, rewards))


def score_by_majority(context: RewardContext) -> Scored:
    """Let each group vote on its answer."""
    verdicts = context.verdicts
    return Scored(
        intervals=majority_intervals(context.rollouts.prompt_id_N, verdicts.extracted_N, verdicts.unscorable_N)
    )


def completion_statistics(context: RewardContext) -> list[FloatArray | None]:
    """Return the policy's statistics at every completion token; None where a completion is empty or too long."""
    rollouts = context.rollouts
    index = [i for i, ids in enumerate(rollouts.token_ids_N) if ids]
    rows = [
        SuffixRow(
            prompt_ids=rollouts.prompt_token_ids_N[i],
            suffix_ids=rollouts.token_ids_N[i],
            num_scored=len(rollouts.token_ids_N[i]),
        )
        for i in index
    ]
    budget = context.config.objective.micro_batch_tokens
    result: list[FloatArray | None] = [None] * len(rollouts)
    for i, value in zip(index, suffix_statistics(context.worker.model, rows, max_batch_tokens=budget), strict=True):
        result[i] = value
    return result


def score_by_own_probabilities(context: RewardContext, *, what: Measure) -> Scored:
    """Read one measure off the policy's distributions."""
    statistics = completion_statistics(context)
    return Scored(intervals=self_supervised_intervals(context.rollouts.prompt_id_N, statistics, what))


def score_by_verifier_model(context: RewardContext) -> Scored:
    """Ask the judge, as a client, whether each answer equals the reference."""
    rollouts, settings, tokenizer = context.rollouts, context.config.reward.verifier_model, context.worker.tokenizer
    comparisons = []
    for i, prompt_id in enumerate(rollouts.prompt_id_N):
        row = context.rows[prompt_id]
        answer = context.verdicts.extracted_N[i]
        comparisons.append(Comparison(text_of(row), answer, references_of(row)[0].text))
    intervals = verifier_model_intervals(
        rollouts.prompt_id_N,
        comparisons,
        context.verdicts.unscorable_N,
        judge=context.require_models().judge,
        count_tokens=lambda text: len(tokenizer.encode(text, add_special_tokens=False)),
        token_penalty=settings.token_penalty,
        max_tokens_apart=settings.max_tokens_apart,
    )
    return Scored(intervals=intervals)


def score_by_trapo(context: RewardContext) -> Scored:
    """Verify labelled prompts, let unlabelled ones vote, and keep those whose pass rates move like labelled ones."""
    rollouts, settings = context.rollouts, context.config.reward.trapo
    labelled_N = np.array([context.rows[p].reference is not None for p in rollouts.prompt_id_N], dtype=bool)
    voted = score_by_majority(context).intervals
    verified = score_by_verifier(context).intervals
    parts = []
    for source, chosen_N in ((verified, labelled_N), (voted, ~labelled_N)):
        index = np.flatnonzero(chosen_N).tolist()
        if index:
            parts.append((index, take_intervals(source, index)))
    intervals = assemble_intervals(rollouts.prompt_id_N, parts)
    rates, former = pass_rates(intervals), context.state.get("trajectories", {})
    known = set(context.state.get("labelled", ())) | {p for p in rates if context.rows[p].reference is not None}
    trajectories = extended(former, rates)
    references = [trajectories[name] for name in sorted(known) if name in trajectories]
    unlabelled = [p for p in dict.fromkeys(rollouts.prompt_id_N) if context.rows[p].reference is None]
    similarities = {p: similarity(trajectories[p], references) if p in rates else None for p in unlabelled}
    chosen = select(similarities, top_share=settings.top_share, min_similarity=settings.min_similarity)
    found = [value for value in similarities.values() if value is not None]
    kept = [bool(labelled) or p in chosen for p, labelled in zip(rollouts.prompt_id_N, labelled_N, strict=True)]
    return Scored(
        intervals=intervals,
        state={"trajectories": trajectories, "labelled": sorted(known)},
        facts={
            "kept_prompts": len(chosen),
            "unlabelled_prompts": len(unlabelled),
            "mean_similarity": float(np.mean(found)) if found else None,
        },
        kept_N=np.array(kept, dtype=bool),
    )


def score_by_variance_aware(context: RewardContext) -> Scored:
    """Draw a reward from each judged interval, by a stream of the iteration, the prompt and the sample."""
    judged, rollouts = context.require_judged(), context.rollouts
    keys = zip(rollouts.prompt_id_N, rollouts.sample_N, strict=True)
    uniform_N = np.array([stream(context.config.seed, "variance_aware", context.number, *key).random() for key in keys])
    penalty = context.config.reward.variance_aware.penalty
    return Scored(intervals=variance_aware_intervals(judged, uniform_N, penalty=penalty))


def score_by_student_t(context: RewardContext) -> Scored:
    """Reward the sides of each group's Student-t intervals."""
    confidence = context.config.reward.student_t.confidence
    return Scored(intervals=student_t_intervals(context.require_judged(), confidence=confidence))


def teach_references(context: RewardContext) -> Scored:
    """Give the rendered reference of each prompt to learn; rollouts are not rewarded."""
    rollouts = context.rollouts
    taught = []
    for i in take_first(rollouts.prompt_id_N):
        row = context.rows[rollouts.prompt_id_N[i]]
        target = encode_target(context.worker.tokenizer, get_suite(row.suite).render_reference(row))
        taught.append(_taught(rollouts.prompt_id_N[i], rollouts.prompt_token_ids_N[i], target))
    return Scored(intervals=missing_intervals(rollouts.prompt_id_N, None, "sft"), taught=tuple(taught))


def teach_own_completions(context: RewardContext) -> Scored:
    """Give each prompt's greedy completion to learn; one that was cut off or is empty is not taught."""
    rollouts = context.rollouts
    taught = [
        _taught(rollouts.prompt_id_N[i], rollouts.prompt_token_ids_N[i], rollouts.token_ids_N[i])
        for i in take_first(rollouts.prompt_id_N)
        if rollouts.finish_reason_N[i] == "stop" and rollouts.token_ids_N[i]
    ]
    return Scored(
        intervals=missing_intervals(rollouts.prompt_id_N, None, "pseudo_sft"),
        taught=tuple(taught),
        facts={"taught_share": len(taught) / max(len(set(rollouts.prompt_id_N)), 1)},
    )


def take_first(prompt_ids: tuple[str, ...]) -> list[int]:
    """Return the row of each prompt's first rollout."""
    first: dict[str, int] = {}
    for i, prompt_id in enumerate(prompt_ids):
        first.setdefault(prompt_id, i)
    return list(first.values())


def _taught(prompt_id: str, prompt_ids: tuple[int, ...], target_ids: tuple[int, ...]) -> TaughtRow:
    return TaughtRow(prompt_id=prompt_id, prompt_ids=prompt_ids, target_ids=target_ids, weight=1.0)


SCORERS: Mapping[str, Scorer] = MappingProxyType(
    {
        "judge_interval": score_by_judge,
        "variance_aware": score_by_variance_aware,
        "student_t": score_by_student_t,
        "verifier": score_by_verifier,
        "verifier_model": score_by_verifier_model,
        "reference_probability": score_by_reference_probability,
        "verifree": score_by_verifree,
        "majority": score_by_majority,
        "self_certainty": partial(score_by_own_probabilities, what="self_certainty"),
        "token_entropy": partial(score_by_own_probabilities, what="token_entropy"),
        "sequence_likelihood": partial(score_by_own_probabilities, what="sequence_likelihood"),
        "trapo": score_by_trapo,
        "anchor_contrast": score_by_anchor_contrast,
        "sft": teach_references,
        "pseudo_sft": teach_own_completions,
    }
)
"""Every source by its name; the names are those of `rewards.registry.SOURCES`."""
