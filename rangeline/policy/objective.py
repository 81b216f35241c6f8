"""The clipped policy objective with optional KL and entropy terms, as a loss to minimise.

It computes the loss of some rows of a batch, to be summed over micro-batches.
Loss = -sum_ik w_i [f_ik min(rho A, clip(rho, 1-eps_low, 1+eps_high) A) - beta KL + c H], rho = exp(logp - logp_old);
with a dual clip a token of negative advantage gains at least c_dual A. f is the factor of `policy.mismatch`.
It is divided by nothing here: the token weights w_i already hold the global normaliser (`policy.batch.token_weights`).
A KL penalty inside the reward, which some public code uses, is left out because it would make advantages depend on the
reference policy; the forms of the KL term are those of `policy.divergence`.

Shapes: B rows of a micro-batch, L prompt and completion tokens (padded).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rangeline.errors import NonFiniteError
from rangeline.policy.divergence import MAX_LOG_RATIO, KlForm, kl_per_token


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TokenTerms:
    """What the objective reads of one micro-batch; values outside the mask are never used, whatever they are."""

    current_BL: Tensor
    """Log-probs under the policy being updated; carries the gradient."""
    old_BL: Tensor
    """Log-probs under the policy before this batch's first step."""
    reference_BL: Tensor | None
    """Log-probs under the frozen reference policy; None when the KL term is off."""
    entropy_BL: Tensor
    """Entropy of the policy at each token."""
    mask_BL: Tensor
    """bool, True at completion tokens."""
    advantage_B: Tensor
    weight_B: Tensor
    """Weight of one token of each row."""
    factor_BL: Tensor | None = None
    """Importance factor of each token, without gradient; it multiplies the clipped term alone. None multiplies by 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveTerms:
    """Finite numbers of one step; means and shares are over completion tokens."""

    loss: float
    clip_share: float
    """Share of tokens whose gradient the clip removes, at either bound."""
    clip_low_share: float
    """Share below the lower bound, with a negative advantage."""
    clip_high_share: float
    """Share above the upper bound, with a positive advantage."""
    clip_low_min: float
    """The least share below the lower bound of any row with tokens."""
    clip_high_max: float
    """The largest share above the upper bound of any row."""
    dual_clip_share: float
    """Share of tokens that the dual clip bounds; 0 when it is off."""
    kl: float
    """Mean KL estimate to the reference policy, in the form of the loss; 0 when the term is off."""
    entropy: float
    ratio_min: float
    ratio_mean: float
    ratio_max: float
    num_tokens: int


def policy_loss(
    terms: TokenTerms,
    *,
    clip_low: float,
    clip_high: float,
    dual_clip: float | None = None,
    kl_coefficient: float = 0.0,
    kl_form: KlForm = "k3",
    entropy_coefficient: float = 0.0,
) -> tuple[Tensor, ObjectiveTerms]:
    """Return the loss of one micro-batch and what to report of it.

    Parameters
    ----------
    terms
        Log-probs, entropies, mask, advantages, weights and importance factors.
    clip_low, clip_high
        The ratio is clipped to [1 - clip_low, 1 + clip_high]; a larger upper bound than lower one is clip-higher.
    dual_clip
        Above 1 + clip_high: the ratio of a token of negative advantage counts as this at most. None = off.
    kl_coefficient
        beta; 0 turns the term off.
    kl_form
        Estimator of the KL term, see `policy.divergence`.
    entropy_coefficient
        Weight of the entropy bonus; 0 turns it off.

    Returns
    -------
    tuple of Tensor and ObjectiveTerms
        Scalar loss with gradient, and finite numbers.

    Raises
    ------
    NonFiniteError
        When a log-prob inside the mask, or the loss, is not finite.

    Notes
    -----
    PPO (2017) eq. 7 with two clip bounds (DAPO, 2025); dual clip: Ye et al. (2020) eq. 3. The bound on log-ratios is
    ours, and so is that KL and entropy are weighted as the clipped term is.
    """
    mask_BL = terms.mask_BL
    current_BL = _masked("current log-probs", terms.current_BL, mask_BL)
    old_BL = _masked("old log-probs", terms.old_BL, mask_BL)
    advantage_B1 = terms.advantage_B.to(current_BL.dtype)[:, None]
    ratio_BL = (current_BL - old_BL).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
    clipped_BL = ratio_BL.clamp(1.0 - clip_low, 1.0 + clip_high)
    gain_BL = torch.minimum(ratio_BL * advantage_B1, clipped_BL * advantage_B1)
    if dual_clip is not None:
        gain_BL = torch.where(advantage_B1 < 0, torch.maximum(gain_BL, dual_clip * advantage_B1), gain_BL)
    if terms.factor_BL is not None:
        gain_BL = gain_BL * _masked("importance factors", terms.factor_BL, mask_BL)
    kl_BL = torch.zeros_like(current_BL)
    if kl_coefficient and terms.reference_BL is not None:
        kl_BL = kl_per_token(current_BL, _masked("reference log-probs", terms.reference_BL, mask_BL), kl_form)
        gain_BL = gain_BL - kl_coefficient * kl_BL
    entropy_BL = _masked("entropies", terms.entropy_BL, mask_BL)
    if entropy_coefficient:
        gain_BL = gain_BL + entropy_coefficient * entropy_BL
    weight_B1 = terms.weight_B.to(current_BL.dtype)[:, None]
    loss = -torch.where(mask_BL, weight_B1 * gain_BL, 0.0).sum()
    if not torch.isfinite(loss):
        msg = f"'loss' must be finite; got {loss.item()} (policy update). Lower the learning rate."
        raise NonFiniteError(msg)
    low_BL = mask_BL & (ratio_BL < 1.0 - clip_low) & (advantage_B1 < 0)
    high_BL = mask_BL & (ratio_BL > 1.0 + clip_high) & (advantage_B1 > 0)
    dual_BL = mask_BL & (advantage_B1 < 0) & (ratio_BL > (dual_clip or float("inf")))
    return loss, ObjectiveTerms(
        loss=float(loss.detach()),
        kl=_mean(kl_BL, mask_BL),
        entropy=_mean(entropy_BL, mask_BL),
        **_clip_facts(low_BL, high_BL, dual_BL, mask_BL),
        **_ratio_facts(ratio_BL.detach()[mask_BL]),
        num_tokens=int(mask_BL.sum()),
    )


def combine_terms(parts: Sequence[ObjectiveTerms]) -> ObjectiveTerms:
    """Combine the reports of micro-batches: losses add up, means and shares are weighted by tokens."""
    num_tokens = sum(part.num_tokens for part in parts)
    told = [part for part in parts if part.num_tokens]

    def mean(name: str, otherwise: float = 0.0) -> float:
        total = sum(getattr(part, name) * part.num_tokens for part in parts)
        return float(total / num_tokens) if num_tokens else otherwise

    return ObjectiveTerms(
        loss=sum(part.loss for part in parts),
        clip_share=mean("clip_share"),
        clip_low_share=mean("clip_low_share"),
        clip_high_share=mean("clip_high_share"),
        clip_low_min=min((part.clip_low_min for part in told), default=0.0),
        clip_high_max=max((part.clip_high_max for part in told), default=0.0),
        dual_clip_share=mean("dual_clip_share"),
        kl=mean("kl"),
        entropy=mean("entropy"),
        ratio_min=min((part.ratio_min for part in told), default=1.0),
        ratio_mean=mean("ratio_mean", 1.0),
        ratio_max=max((part.ratio_max for part in told), default=1.0),
        num_tokens=num_tokens,
    )


def _mean(values_BL: Tensor, mask_BL: Tensor) -> float:
    # Masked values are 0 already, but for k3 of two zeros, which is 0 as well.
    return float(values_BL.detach().double().sum()) / max(int(mask_BL.sum()), 1)


def _clip_facts(low_BL: Tensor, high_BL: Tensor, dual_BL: Tensor, mask_BL: Tensor) -> dict[str, float]:
    count_B = mask_BL.sum(dim=1)
    filled_B = count_B > 0
    count = max(int(count_B.sum()), 1)
    low_B, high_B = (hit_BL.sum(dim=1)[filled_B] / count_B[filled_B] for hit_BL in (low_BL, high_BL))
    low, high = float(low_BL.sum()) / count, float(high_BL.sum()) / count
    return {
        "clip_share": float((low_BL | high_BL).sum()) / count,
        "clip_low_share": low,
        "clip_high_share": high,
        "clip_low_min": float(low_B.min()) if len(low_B) else 0.0,
        "clip_high_max": float(high_B.max()) if len(high_B) else 0.0,
        "dual_clip_share": float(dual_BL.sum()) / count,
    }


def _ratio_facts(ratio_R: Tensor) -> dict[str, float]:
    if not len(ratio_R):
        return {"ratio_min": 1.0, "ratio_mean": 1.0, "ratio_max": 1.0}
    return {
        "ratio_min": float(ratio_R.min()),
        "ratio_mean": float(ratio_R.double().mean()),
        "ratio_max": float(ratio_R.max()),
    }


def _masked(name: str, values_BL: Tensor, mask_BL: Tensor) -> Tensor:
    kept_BL = torch.where(mask_BL, values_BL, 0.0)
    bad = torch.nonzero(~torch.isfinite(kept_BL.detach()))
    if len(bad):
        row, column = (int(v) for v in bad[0])
        value = float(kept_BL.detach()[row, column])
        msg = (
            f"'{name}' must be finite at completion tokens; got {value} (row {row} of the micro-batch, token "
            f"{column}). Lower the learning rate, and resume from the last checkpoint."
        )
        raise NonFiniteError(msg)
    return kept_BL
