"""Everything that is reported of one benchmark: values with intervals, and what was cut off, unread or missing.

Computes avg@n, pass@k, cons@k, G-Pass@k(0.5) and G-Pass@k(1) of verdicts, or ROUGE, BLEU and BERTScore of texts.
Formulas are those of `sampling_metrics`, `group_metrics` and `text_overlap`.
Every value is a mean over the problems that have enough valid completions, and counts them.
A completion without a verdict or a score is in no mean; its share is reported with each reason. Shares are divided by
all completions, asked or not.

Shapes: N completions flat, P problems.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from rangeline.errors import BadInputError
from rangeline.evaluation.group_metrics import consensus_at_k, g_pass_at_k
from rangeline.evaluation.sampling_metrics import Estimate, mean_estimate, pass_at_k
from rangeline.evaluation.text_overlap import corpus_bleu
from rangeline.records import FloatArray

_STEADY = (0.5, 1.0)
"""Thresholds of G-Pass@k: half of the completions, and all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredCompletion:
    """One completion as its suite read it."""

    prompt_id: str
    verdict: float | None
    """Reward; None is missing."""
    answer: str | None
    """Canonical answer, None unless one was found."""
    status: str
    """`found`, `absent` or `ambiguous`; `not sampled` where the prompt had no room in the model."""
    reason: str
    finish: str
    """`stop` or `length`; `none` where nothing was sampled."""


def verdict_metrics(
    rows: Sequence[ScoredCompletion], *, samples: int, ks: Sequence[int], confidence: float, seed: int
) -> dict[str, Any]:
    """Return the metrics of a benchmark whose completions are right or wrong.

    Parameters
    ----------
    rows
        N completions, in any order; at least one.
    samples
        n that was asked for; `avg@n` carries it in its name.
    ks
        Values of k, each at most n.
    confidence, seed
        Of the clustered intervals.

    Returns
    -------
    dict[str, Any]
        `estimates` by measure (`avg@4`, `pass@2`, `cons@2`, `g-pass@2(0.5)`); `floor`, the values were every missing
        verdict wrong, as published numbers count them; and the shares of `reading_shares`.

    Raises
    ------
    BadInputError
        If there is no row, or a verdict is neither 0, 1 nor missing.
    """
    estimates = _verdict_estimates(rows, samples=samples, ks=ks, confidence=confidence, seed=seed)
    wrong = [replace(row, verdict=0.0, answer=None) if row.verdict is None else row for row in rows]
    floor = _verdict_estimates(wrong, samples=samples, ks=ks, confidence=confidence, seed=seed)
    return {
        "estimates": {name: asdict(value) for name, value in estimates.items()},
        "floor": {name: value.value for name, value in floor.items()},
        "unavailable": {},
        **reading_shares(rows),
    }


def _verdict_estimates(
    rows: Sequence[ScoredCompletion], *, samples: int, ks: Sequence[int], confidence: float, seed: int
) -> dict[str, Estimate]:
    groups = _valid_groups(rows)
    estimate = partial(mean_estimate, confidence=confidence, seed=seed, support=(0.0, 1.0))
    estimates = {f"avg@{samples}": estimate([sum(map(_verdict, group)) / len(group) for group in groups.values()])}
    for k in ks:
        large = [group for group in groups.values() if len(group) >= k]
        counts = [(len(group), int(sum(map(_verdict, group)))) for group in large]
        estimates[f"pass@{k}"] = estimate([pass_at_k(n, c, k) for n, c in counts])
        if k == 1:
            # One completion is its own consensus, and as steady as it is right.
            continue
        estimates[f"cons@{k}"] = estimate(
            [consensus_at_k([row.answer for row in group], [_verdict(row) == 1 for row in group], k) for group in large]
        )
        for threshold in _STEADY:
            estimates[f"g-pass@{k}({threshold:g})"] = estimate([g_pass_at_k(n, c, k, threshold) for n, c in counts])
    return estimates


def overlap_metrics(
    rows: Sequence[ScoredCompletion],
    scores_N: Mapping[str, FloatArray],
    counts_NC: FloatArray,
    *,
    unavailable: Mapping[str, str],
    confidence: float,
    seed: int,
) -> dict[str, Any]:
    """Return the metrics of a benchmark whose texts are compared with references.

    Parameters
    ----------
    rows
        N completions.
    scores_N
        Scores of each by measure, NaN where missing: `rouge1`, `rouge2`, `rougeL`, and `bert_score` where at hand.
    counts_NC
        BLEU counts of each, NaN where missing.
    unavailable
        Reason of each measure that could not be made.
    confidence, seed
        Of the clustered intervals.
    """
    prompt_ids = np.array([row.prompt_id for row in rows], dtype=object)
    rouge = ("rouge1", "rouge2", "rougeL")
    every = {**scores_N, "rouge_mean": np.mean([scores_N[name] for name in rouge], axis=0)}
    estimates: dict[str, Any] = {}
    for name, score_N in every.items():
        groups: dict[str, list[float]] = {}
        for prompt_id, score in zip(prompt_ids, score_N, strict=True):
            if not np.isnan(score):
                groups.setdefault(prompt_id, []).append(float(score))
        means = [sum(group) / len(group) for group in groups.values()]
        # BERTScore is a cosine, and a cosine may be negative.
        support = (-1.0, 1.0) if name == "bert_score" else (0.0, 1.0)
        estimates[name] = asdict(mean_estimate(means, confidence=confidence, seed=seed, support=support))
    whole = ~np.isnan(counts_NC).any(axis=1)
    bleu = corpus_bleu(counts_NC[whole], tuple(prompt_ids[whole]), confidence=confidence, seed=seed)
    estimates["bleu"] = asdict(bleu)
    return {"estimates": estimates, "floor": {}, "unavailable": dict(unavailable), **reading_shares(rows)}


def reading_shares(rows: Sequence[ScoredCompletion]) -> dict[str, Any]:
    """Return the shares of completions that were cut off, held no or several answers, or have no verdict, and why.

    Raises
    ------
    BadInputError
        If there is no row.
    """
    if not rows:
        msg = "'rows' must hold at least one completion; got 0. Ask at least one problem."
        raise BadInputError(msg)
    total = len(rows)
    missing = Counter(row.reason for row in rows if row.verdict is None)
    return {
        "truncated_share": sum(row.finish == "length" for row in rows) / total,
        "absent_share": sum(row.status == "absent" for row in rows) / total,
        "ambiguous_share": sum(row.status == "ambiguous" for row in rows) / total,
        "missing_share": sum(missing.values()) / total,
        "missing_reasons": {reason: count / total for reason, count in sorted(missing.items())},
        "num_completions": total,
        "num_problems": len({row.prompt_id for row in rows}),
    }


def _verdict(row: ScoredCompletion) -> float:
    if row.verdict not in (0.0, 1.0):
        msg = f"'verdict' must be 0 or 1; got {row.verdict} (prompt '{row.prompt_id}'). Score graded texts by overlap."
        raise BadInputError(msg)
    return row.verdict


def _valid_groups(rows: Sequence[ScoredCompletion]) -> dict[str, list[ScoredCompletion]]:
    groups: dict[str, list[ScoredCompletion]] = {}
    for row in rows:
        if row.verdict is not None:
            groups.setdefault(row.prompt_id, []).append(row)
    return groups
