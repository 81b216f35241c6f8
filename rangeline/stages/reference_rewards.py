"""Sources that read how likely the reference is: RLPR and VeriFree, from rollouts to what they say of them."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from rangeline.policy.batch import TaughtRow
from rangeline.records import BoolArray, FloatArray, PromptRow, RewardIntervals, RolloutSet
from rangeline.reward_config import ReferenceProbabilityConfig
from rangeline.rewards.reference_probability import (
    add_terms,
    aggregate_probabilities,
    combine_references,
    count_repeats,
    reference_intervals,
)
from rangeline.rewards.source import assemble_intervals
from rangeline.rewards.splice import Spliced, answer_start, encode_reference, has_reasoning, reference_lead, splice
from rangeline.rewards.spread_filter import FilterState, advance, group_spreads, kept_rows, observe
from rangeline.rewards.verifree import verifree_intervals
from rangeline.rollout.selection import join_rollouts
from rangeline.rollout.suffix_logprobs import SuffixRow, suffix_logprobs
from rangeline.stages.rewarding import RewardContext, Scored
from rangeline.suites.registry import get_suite


@dataclass(frozen=True, slots=True)
class Reference:
    """One right answer of a prompt, and what leads over to it where nothing was reasoned."""

    text: str
    lead: str


@dataclass(frozen=True, slots=True, eq=False)
class _Parts:
    """Rollouts cut before their answers, with each reference of their prompt put there."""

    spliced_N: tuple[tuple[Spliced, ...], ...]
    """Empty where the rollout is not well formed."""
    missing_N: BoolArray
    """True where nobody can say what the answer is, or where in the completion it stands."""

    @property
    def well_formed_N(self) -> BoolArray:
        """True where there is reasoning and an answer after it."""
        return np.array([bool(parts) for parts in self.spliced_N], dtype=bool)


def references_of(row: PromptRow) -> tuple[Reference, ...]:
    """Return the reference of a row, and those that its metadata lists under `references`, as answers alone."""
    suite, found = get_suite(row.suite), []
    given = row.metadata.get("references", [])
    texts = [row.reference, *(given if isinstance(given, list | tuple) else [])]
    for text in dict.fromkeys(str(item) for item in texts if item is not None):
        rendered = suite.render_reference(replace(row, reference=text))
        answer = suite.extract(rendered, row).value or text
        found.append(Reference(answer, reference_lead(rendered, answer)))
    return tuple(found)


def _cut(context: RewardContext) -> _Parts:
    rollouts, verdicts, tokenizer = context.rollouts, context.verdicts, context.worker.tokenizer
    references = {
        prompt_id: references_of(context.rows[prompt_id]) for prompt_id in dict.fromkeys(rollouts.prompt_id_N)
    }
    spliced: list[tuple[Spliced, ...]] = []
    # An answer that a suite reads in another writing than its own, such as "(b)" as B, cannot be cut off, and says
    # nothing of the reasoning before it.
    unplaced_N = np.zeros(len(rollouts), dtype=bool)
    for i, prompt_id in enumerate(rollouts.prompt_id_N):
        row, completion = context.rows[prompt_id], rollouts.completion_N[i]
        extraction = get_suite(row.suite).extract(completion, row, truncated=rollouts.finish_reason_N[i] == "length")
        start = answer_start(completion, extraction.value) if extraction.value is not None else None
        unplaced_N[i] = start is None and extraction.value is not None
        if start is None or not has_reasoning(completion, start):
            spliced.append(())
            continue
        ids = rollouts.token_ids_N[i]
        spliced.append(tuple(splice(tokenizer, ids, completion, start, item.text) for item in references[prompt_id]))
    return _Parts(tuple(spliced), verdicts.unscorable_N | unplaced_N)


def _probe(context: RewardContext, parts: _Parts, *, share_prefix: bool) -> list[list[FloatArray | None]]:
    """Score every reference of every well-formed rollout with the policy; one entry a reference."""
    rows, owner = [], []
    for i, spliced in enumerate(parts.spliced_N):
        for item in spliced:
            prompt_ids = context.rollouts.prompt_token_ids_N[i]
            rows.append(
                SuffixRow(prompt_ids=prompt_ids, suffix_ids=item.suffix_ids, num_scored=len(item.reference_ids))
            )
            owner.append(i)
    values = context.require_models().policy_logprobs(rows, share_prefix=share_prefix)
    result: list[list[FloatArray | None]] = [[] for _ in parts.spliced_N]
    for i, value in zip(owner, values, strict=True):
        result[i].append(value)
    return result


def _baselines(
    context: RewardContext, known: dict[str, float | None], settings: ReferenceProbabilityConfig
) -> dict[str, list[float]]:
    """Return r' of each reference of each prompt, asking the initial policy for those not yet known."""
    tokenizer, keys, rows = context.worker.tokenizer, [], []
    by_prompt: dict[str, list[str]] = {}
    for i, prompt_id in enumerate(context.rollouts.prompt_id_N):
        if prompt_id in by_prompt:
            continue
        prompt_ids, by_prompt[prompt_id] = context.rollouts.prompt_token_ids_N[i], []
        for item in references_of(context.rows[prompt_id]):
            key = hashlib.sha256(repr((prompt_ids, item.lead, item.text)).encode()).hexdigest()[:32]
            by_prompt[prompt_id].append(key)
            if key not in known and key not in keys:
                lead, ids = encode_reference(tokenizer, item.lead, item.text)
                rows.append(SuffixRow(prompt_ids=prompt_ids, suffix_ids=(*lead, *ids), num_scored=len(ids)))
                keys.append(key)
    if rows:
        budget = context.config.objective.micro_batch_tokens
        values = suffix_logprobs(context.require_models().initial, rows, max_batch_tokens=budget)
        for key, value in zip(keys, values, strict=True):
            baseline = float("nan") if value is None else aggregate_probabilities(value, settings.aggregate)
            known[key] = baseline if np.isfinite(baseline) else None
    read = {key: float("nan") if base is None else base for key, base in known.items()}
    return {prompt_id: [read[key] for key in owned] for prompt_id, owned in by_prompt.items()}


def _probability_rewards(
    context: RewardContext, settings: ReferenceProbabilityConfig, known: dict[str, float | None]
) -> RewardIntervals:
    parts = _cut(context)
    probed = _probe(context, parts, share_prefix=settings.share_prefix)
    baselines = _baselines(context, known, settings) if settings.debias else {}
    gain_N = np.zeros(len(context.rollouts))
    for i, logprobs in enumerate(probed):
        if not logprobs:
            continue
        means = [float("nan") if v is None else aggregate_probabilities(v, settings.aggregate) for v in logprobs]
        before = baselines.get(context.rollouts.prompt_id_N[i], [0.0] * len(means))
        gains = [mean - base for mean, base in zip(means, before, strict=True)]
        gain_N[i] = combine_references(gains, settings.references)
    intervals = reference_intervals(
        context.rollouts.prompt_id_N,
        gain_N,
        well_formed_N=parts.well_formed_N,
        missing_N=parts.missing_N,
        format_weight=settings.format_weight,
    )
    if not (settings.repetition_penalty or settings.verifier_weight):
        return intervals
    return add_terms(
        intervals,
        repeats_N=[count_repeats(text) for text in context.rollouts.completion_N],
        repetition_penalty=settings.repetition_penalty,
        verified_N=context.verdicts.truth_N,
        verifier_weight=settings.verifier_weight,
    )


def score_by_reference_probability(context: RewardContext) -> Scored:
    """Score rollouts by RLPR; drop prompts whose rewards hardly differ, and draw others in their place."""
    settings = context.config.reward.reference_probability
    known: dict[str, float | None] = dict(context.state.get("baseline", {}))
    former = FilterState.from_json(context.state.get("filter", {}))
    rule = settings.filter
    state = advance(former, context.number, filter_from=rule.filter_from, decay=rule.decay)
    is_filtering = rule.enabled and state.ema is not None and context.number >= rule.filter_from
    threshold = rule.beta * state.ema if is_filtering and state.ema is not None else None
    drawn, rows = [context.rollouts], dict(context.rows)
    scored = [_probability_rewards(context, settings, known)]
    kept = [kept_rows(scored[0], threshold)]
    wanted, end = len(set(context.rollouts.prompt_id_N)), "full"
    for _ in range(rule.max_refills if threshold is not None else 0):
        lacking = wanted - _num_kept(drawn, kept)
        if lacking <= 0:
            break
        more = context.draw(lacking, _num_prompts(drawn) - wanted)
        if more is None:
            end = "pool exhausted"
            break
        rows |= more[1]
        drawn.append(more[0])
        scored.append(_probability_rewards(replace(context, rollouts=more[0], rows=rows), settings, known))
        kept.append(kept_rows(scored[-1], threshold))
    num_kept = _num_kept(drawn, kept)
    if end == "full" and num_kept < wanted:
        end = "refills spent"
    spreads = [value for part in scored for value in group_spreads(part).values()]
    state = observe(state, context.number, spreads, record_from=rule.record_from, filter_from=rule.filter_from)
    finite = [value for value in spreads if value is not None]
    joined, ends = join_rollouts(drawn), np.cumsum([0, *map(len, drawn)]).tolist()
    blocks = [(range(begin, stop), part) for begin, stop, part in zip(ends[:-1], ends[1:], scored, strict=True)]
    return Scored(
        intervals=assemble_intervals(joined.prompt_id_N, blocks),
        state={"baseline": known, "filter": state.to_json()},
        facts={
            "mean_group_std": float(np.mean(finite)) if finite else None,
            "filter_threshold": threshold,
            "drawn_prompts": _num_prompts(drawn),
            "kept_prompts": num_kept,
            "filter_end": "off" if threshold is None else "nothing kept" if not num_kept else end,
        },
        kept_N=np.concatenate(kept),
        rollouts=joined if len(drawn) > 1 else None,
        rows=rows,
    )


def _num_prompts(sets: Sequence[RolloutSet]) -> int:
    return sum(len(set(item.prompt_id_N)) for item in sets)


def _num_kept(sets: Sequence[RolloutSet], kept: Sequence[BoolArray]) -> int:
    return len(
        {p for item, keep in zip(sets, kept, strict=True) for p, k in zip(item.prompt_id_N, keep, strict=True) if k}
    )


def score_by_verifree(context: RewardContext) -> Scored:
    """Score rollouts by VeriFree, and give the references to learn, each weighted by its rollout's reward."""
    parts = _cut(context)
    first = [values[0] if values else None for values in _probe(context, parts, share_prefix=True)]
    rollouts = context.rollouts
    intervals = verifree_intervals(
        rollouts.prompt_id_N, first, well_formed_N=parts.well_formed_N, missing_N=parts.missing_N
    )
    taught, trained = [], []
    for i, spliced in enumerate(parts.spliced_N):
        whole = len(rollouts.token_ids_N[i])
        trained.append(len(spliced[0].reasoning_ids) if spliced else whole)
        if spliced and not intervals.missing_N[i] and context.config.reward.verifree.reference_term:
            item = spliced[0]
            taught.append(
                TaughtRow(
                    prompt_id=rollouts.prompt_id_N[i],
                    prompt_ids=(*rollouts.prompt_token_ids_N[i], *item.reasoning_ids, *item.lead_ids),
                    target_ids=item.reference_ids,
                    weight=float(intervals.lower_N[i]),
                )
            )
    return Scored(intervals=intervals, trained_tokens_N=tuple(trained), taught=tuple(taught))
