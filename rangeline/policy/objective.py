"""The clipped policy objective with optional KL and entropy terms, as a loss to minimise.

It computes the loss of some rows of a batch, to be summed over micro-batches.
Loss = -sum_ik w_i [min(rho A, clip(rho, 1-eps_low, 1+eps_high) A) - beta KL + c H], rho = exp(logp - logp_old).
It is divided by nothing here: the token weights w_i already hold the global normaliser (`policy.batch.token_weights`).
KL is the k3 estimator inside the loss; a KL penalty inside the reward, which some public code uses, is left out
because it would make advantages depend on the reference policy.

Shapes: B rows of a micro-batch, L prompt and completion tokens (padded).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rangeline.errors import NonFiniteError

# exp(20) is 5e8: a larger ratio says that the numbers broke down, and exp(88) overflows float32.
MAX_LOG_RATIO = 20.0


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveTerms:
    """Finite numbers of one step; means and shares are over completion tokens."""

    loss: float
    clip_share: float
    """Share of tokens whose gradient the clip removes."""
    kl: float
    """Mean k3 to the reference policy; 0 when the term is off."""
    entropy: float
    ratio_max: float
    num_tokens: int


def policy_loss(
    terms: TokenTerms,
    *,
    clip_low: float,
    clip_high: float,
    kl_coefficient: float = 0.0,
    entropy_coefficient: float = 0.0,
) -> tuple[Tensor, ObjectiveTerms]:
    """Return the loss of one micro-batch and what to report of it.

    Parameters
    ----------
    terms
        Log-probs, entropies, mask, advantages and weights.
    clip_low, clip_high
        The ratio is clipped to [1 - clip_low, 1 + clip_high].
    kl_coefficient
        beta; 0 turns the term off.
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
    PPO (2017) eq. 7 with two clip bounds (DAPO, 2025); k3 is exp(d) - d - 1 with d = reference - current
    (Schulman, 2020). The bound on log-ratios is ours.
    """
    mask_BL = terms.mask_BL
    current_BL = _masked("current log-probs", terms.current_BL, mask_BL)
    old_BL = _masked("old log-probs", terms.old_BL, mask_BL)
    advantage_B1 = terms.advantage_B.to(current_BL.dtype)[:, None]
    ratio_BL = (current_BL - old_BL).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
    clipped_BL = ratio_BL.clamp(1.0 - clip_low, 1.0 + clip_high)
    gain_BL = torch.minimum(ratio_BL * advantage_B1, clipped_BL * advantage_B1)
    kl_BL = torch.zeros_like(current_BL)
    if kl_coefficient and terms.reference_BL is not None:
        reference_BL = _masked("reference log-probs", terms.reference_BL, mask_BL)
        gap_BL = (reference_BL - current_BL).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
        kl_BL = gap_BL.exp() - gap_BL - 1.0
        gain_BL = gain_BL - kl_coefficient * kl_BL
    entropy_BL = _masked("entropies", terms.entropy_BL, mask_BL)
    if entropy_coefficient:
        gain_BL = gain_BL + entropy_coefficient * entropy_BL
    weight_B1 = terms.weight_B.to(current_BL.dtype)[:, None]
    loss = -torch.where(mask_BL, weight_B1 * gain_BL, 0.0).sum()
    if not torch.isfinite(loss):
        msg = f"'loss' must be finite; got {loss.item()} (policy update). Lower the learning rate."
        raise NonFiniteError(msg)
    num_tokens = int(mask_BL.sum())
    count = max(num_tokens, 1)
    is_clipped_BL = mask_BL & (clipped_BL * advantage_B1 < ratio_BL * advantage_B1)
    return loss, ObjectiveTerms(
        loss=float(loss.detach()),
        clip_share=float(is_clipped_BL.sum()) / count,
        kl=float(kl_BL.detach().double().sum()) / count,
        entropy=float(entropy_BL.detach().double().sum()) / count,
        ratio_max=float(ratio_BL.detach().max()) if num_tokens else 1.0,
        num_tokens=num_tokens,
    )


def combine_terms(parts: Sequence[ObjectiveTerms]) -> ObjectiveTerms:
    """Combine the reports of micro-batches: losses add up, means and shares are weighted by tokens."""
    num_tokens = sum(part.num_tokens for part in parts)

    def mean(name: str) -> float:
        return sum(getattr(part, name) * part.num_tokens for part in parts) / max(num_tokens, 1)

    return ObjectiveTerms(
        loss=sum(part.loss for part in parts),
        clip_share=mean("clip_share"),
        kl=mean("kl"),
        entropy=mean("entropy"),
        ratio_max=max((part.ratio_max for part in parts), default=1.0),
        num_tokens=num_tokens,
    )


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
