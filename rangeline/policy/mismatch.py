"""How far the sampler's log-probs lie from the trainer's, and the truncated importance factors that make up for it.

It computes the gap g = logp_old - logp_sampled of every completion token, its sum over a sequence, and factors.
Factor of a token: min(exp(g), cap) at token level; min(exp(sum of the sequence's g), cap) at sequence level.
Means are over tokens, or over sequences, whose gaps are known; no factor is divided by anything.
Dropping what lies beyond the cap, which some code does in place of truncating, is left out: it changes whose tokens the
normaliser counts. What a factor does not make up for is reported beside the raw gap.

A sampler's log-prob that is no finite number is unknown: its gap is in no mean, its factor is 1, and it is counted.

Shapes: B rows of a micro-batch, L prompt and completion tokens (padded).
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from rangeline.errors import MismatchError
from rangeline.policy.divergence import MAX_LOG_RATIO
from rangeline.records import FloatArray

Correction = Literal["none", "token", "sequence"]
_COUNTS = ("_tokens", "_sequences", "_unknown")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """Finite numbers of some rows; `corrected` is what is left of the raw number beside it once factors are applied.

    Without correction the two are the same. Under sequence-level correction a sequence's factor is spread evenly over
    its tokens before gaps are taken. Ratios of nothing are 1.
    """

    mismatch_mean: float = 0.0
    """Mean absolute gap of sampled and old log-probs."""
    mismatch_mean_corrected: float = 0.0
    mismatch_max: float = 0.0
    """Largest absolute gap."""
    mismatch_max_corrected: float = 0.0
    mismatch_tokens: int = 0
    """Completion tokens whose gap is known."""
    mismatch_sequences: int = 0
    """Sequences that have such a token."""
    mismatch_unknown: int = 0
    """Completion tokens whose sampled log-prob is not finite."""
    importance_ratio_min: float = 1.0
    importance_ratio_mean: float = 1.0
    importance_ratio_max: float = 1.0
    """exp(gap) of a token, raw."""
    importance_factor_min: float = 1.0
    importance_factor_mean: float = 1.0
    importance_factor_max: float = 1.0
    """What tokens were multiplied by: 1 without correction."""
    sequence_ratio_min: float = 1.0
    sequence_ratio_min_corrected: float = 1.0
    sequence_ratio_mean: float = 1.0
    sequence_ratio_mean_corrected: float = 1.0
    sequence_ratio_max: float = 1.0
    """exp(sum of gaps) of a sequence."""
    sequence_ratio_max_corrected: float = 1.0
    truncated_share: float = 0.0
    """Share of known tokens whose ratio, or whose sequence's ratio, is above the cap."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class MismatchRows:
    """What one micro-batch says of the mismatch, without gradient."""

    gap_BL: Tensor
    """logp_old - logp_sampled; read at known tokens alone."""
    known_BL: Tensor
    """bool, True at completion tokens whose sampled log-prob is finite."""
    mask_BL: Tensor
    factor_BL: Tensor | None
    """None where nothing is corrected."""
    truncated_BL: Tensor
    """bool, True where the cap was in force."""


def compare_with_sampler(
    old_BL: Tensor, sampled_BL: Tensor, mask_BL: Tensor, *, correction: Correction, cap: float
) -> MismatchRows:
    """Return the gaps of one micro-batch and the factors that are to multiply its clipped terms.

    Parameters
    ----------
    old_BL
        Log-probs of the trainer before the batch's first step; finite inside the mask.
    sampled_BL
        Log-probs of the sampler; anything outside the mask, and not finite where unknown.
    mask_BL
        bool, True at completion tokens.
    correction
        Level of the factors; `none` gives none.
    cap
        Largest factor; positive.

    Returns
    -------
    MismatchRows
        Factors are 1 outside the mask and where the gap is unknown.

    Notes
    -----
    Truncated importance sampling: Ionides (2008); at token level against a sampler of other precision: Yao et al.
    (2025). That an unknown gap counts as none is ours.
    """
    # A broken log-prob of the trainer is an error of the loss, which names its place.
    known_BL = mask_BL & torch.isfinite(sampled_BL) & torch.isfinite(old_BL.detach())
    gap_BL = torch.where(known_BL, old_BL.detach() - sampled_BL.to(old_BL.dtype), 0.0)
    if correction == "none":
        return MismatchRows(
            gap_BL=gap_BL,
            known_BL=known_BL,
            mask_BL=mask_BL,
            factor_BL=None,
            truncated_BL=torch.zeros_like(mask_BL),
        )
    log_ratio_BL = gap_BL if correction == "token" else gap_BL.sum(dim=1, keepdim=True).expand_as(gap_BL)
    ratio_BL = log_ratio_BL.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
    return MismatchRows(
        gap_BL=gap_BL,
        known_BL=known_BL,
        mask_BL=mask_BL,
        factor_BL=torch.where(mask_BL, ratio_BL.clamp(max=cap), 1.0),
        truncated_BL=mask_BL & (ratio_BL > cap),
    )


def measure_mismatch(rows: MismatchRows, *, correction: Correction) -> Mismatch:
    """Return the mismatch of one micro-batch, before and after its factors.

    Parameters
    ----------
    rows
        Gaps and factors.
    correction
        Level that the factors have.
    """
    num_tokens = int(rows.mask_BL.sum())
    gaps, left, factors, totals, totals_left = _numbers(rows, correction)
    if not len(gaps):
        return Mismatch(mismatch_unknown=num_tokens)
    ratios, sequences, sequences_left = (_ratios(values) for values in (gaps, totals, totals_left))
    return Mismatch(
        mismatch_mean=float(np.abs(gaps).mean()),
        mismatch_mean_corrected=float(np.abs(left).mean()),
        mismatch_max=float(np.abs(gaps).max()),
        mismatch_max_corrected=float(np.abs(left).max()),
        mismatch_tokens=len(gaps),
        mismatch_sequences=len(totals),
        mismatch_unknown=num_tokens - len(gaps),
        importance_ratio_min=float(ratios.min()),
        importance_ratio_mean=float(ratios.mean()),
        importance_ratio_max=float(ratios.max()),
        importance_factor_min=float(factors.min()),
        importance_factor_mean=float(factors.mean()),
        importance_factor_max=float(factors.max()),
        sequence_ratio_min=float(sequences.min()),
        sequence_ratio_min_corrected=float(sequences_left.min()),
        sequence_ratio_mean=float(sequences.mean()),
        sequence_ratio_mean_corrected=float(sequences_left.mean()),
        sequence_ratio_max=float(sequences.max()),
        sequence_ratio_max_corrected=float(sequences_left.max()),
        truncated_share=float((rows.truncated_BL & rows.known_BL).sum()) / len(gaps),
    )


def combine_mismatch(parts: Sequence[Mismatch]) -> Mismatch:
    """Combine micro-batches: means are weighted by tokens or sequences, extremes and counts are over all."""
    told = [part for part in parts if part.mismatch_tokens]
    unknown = sum(part.mismatch_unknown for part in parts)
    if not told:
        return Mismatch(mismatch_unknown=unknown)
    tokens, sequences = ([getattr(part, name) for part in told] for name in ("mismatch_tokens", "mismatch_sequences"))
    combined: dict[str, float] = {}
    for name in (item.name for item in fields(Mismatch) if not item.name.endswith(_COUNTS)):
        values = [getattr(part, name) for part in told]
        if "_min" in name or "_max" in name:
            combined[name] = min(values) if "_min" in name else max(values)
        else:
            weights = sequences if name.startswith("sequence") else tokens
            combined[name] = sum(v * w for v, w in zip(values, weights, strict=True)) / sum(weights)
    return Mismatch(
        **combined,
        mismatch_tokens=sum(tokens),
        mismatch_sequences=sum(sequences),
        mismatch_unknown=unknown,
    )


def require_small_mismatch(mismatch: Mismatch, limit: float | None) -> None:
    """Stop before the update where the rollouts are not those of this policy.

    Parameters
    ----------
    mismatch
        Of the batch that is to be learned from.
    limit
        Largest mean absolute gap, before any correction; None allows every one.

    Raises
    ------
    MismatchError
        When the mean gap is above the limit.
    """
    if limit is None or mismatch.mismatch_mean <= limit:
        return
    msg = (
        f"'mismatch_mean' must be at most {limit:g}, objective.mismatch.limit; got {mismatch.mismatch_mean:.4g} "
        f"(largest gap of sampled and trainer log-probs {mismatch.mismatch_max:.4g}; no step was taken). Set "
        "policy.sampler_dtype to float32, check that the sampler holds this policy's weights and temperature, or raise "
        "the limit and set objective.mismatch.correction."
    )
    raise MismatchError(msg)


def _ratios(log_ratios: FloatArray) -> FloatArray:
    ratios: FloatArray = np.exp(np.clip(log_ratios, -MAX_LOG_RATIO, MAX_LOG_RATIO))
    return ratios


def _numbers(part: MismatchRows, correction: Correction) -> tuple[FloatArray, ...]:
    """Return gaps, gaps left and factors of known tokens, and log-ratios of their sequences, whole and left."""
    gap_BL = part.gap_BL.double()
    factor_BL = torch.ones_like(gap_BL) if part.factor_BL is None else part.factor_BL.double()
    count_B1 = part.known_BL.sum(dim=1, keepdim=True)
    share_BL = factor_BL.log() / (count_B1.clamp(min=1) if correction == "sequence" else 1)
    left_BL = torch.where(part.known_BL, gap_BL - share_BL, 0.0)
    filled_B = count_B1[:, 0] > 0
    chosen = (gap_BL[part.known_BL], left_BL[part.known_BL], factor_BL[part.known_BL])
    totals = (gap_BL.sum(dim=1)[filled_B], left_BL.sum(dim=1)[filled_B])
    return tuple(values.cpu().numpy() for values in (*chosen, *totals))
