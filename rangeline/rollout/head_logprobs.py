"""Log-probabilities and entropies of target tokens from hidden states, through a linear head, forward and backward.

Computes log p_v = z_v - log sum_w exp z_w and H = log sum_w exp z_w - sum_v p_v z_v with z = (W h + b) scale / T.
Gradients are those formulas': dz = g (onehot - p) - g_H p (log p + H), dh = W^T dz, dW = dz h^T.
Nothing is divided; all sums are taken in float32, or in float64 where the hidden states are float64.
It leaves logits nowhere: a chunk of rows is projected into one buffer that all chunks share, is projected again in the
backward pass and is turned there into its own gradient, because memory that is touched for the first time costs more
than the arithmetic on it.

Shapes: R rows, H hidden size, V vocabulary.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

_TILE_VALUES = 3 << 18
"""Logits that pointwise work takes at once on a CPU, so that they stay in its cache."""
_BLOCK_TOKENS = 4096
"""Tokens of the vocabulary whose gradient is added at once."""


def is_plain_linear(head: Any) -> bool:
    """Tell whether a head is a linear map whose weight may be read directly: no hook, wrapper, shard or adapter."""
    return (
        type(head) is torch.nn.Linear
        and type(head.weight) is torch.nn.Parameter
        and tuple(head.weight.shape) == (head.out_features, head.in_features)
        and not (head._forward_hooks or head._forward_pre_hooks)
    )


def head_logprobs(
    head: torch.nn.Linear, hidden_RH: Tensor, target_R: Tensor, *, factor: float = 1.0, chunk_rows: int = 256
) -> tuple[Tensor, Tensor]:
    """Return log-probability of each target and entropy at each row, both with gradients.

    Parameters
    ----------
    head
        A linear map for which `is_plain_linear` is true; autocast's precision is followed.
    hidden_RH
        Any float type.
    target_R
        int64.
    factor
        What logits are multiplied by: the model's own scale over the temperature.
    chunk_rows
        Rows projected at once; bounds the memory at ``chunk_rows * V``.

    Returns
    -------
    tuple of Tensor
        Two of shape (R,), float32 or float64; NaN where a row's logits hold a NaN or +infinity, or only -infinity.
    """
    kind = hidden_RH.device.type
    precision = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else hidden_RH.dtype
    if hidden_RH.dtype == torch.float64:
        precision = torch.float64
    values: tuple[Tensor, Tensor] = _HeadLogprobs.apply(
        hidden_RH, head.weight, head.bias, target_R, (factor, chunk_rows, precision)
    )
    return values


class _HeadLogprobs(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden_RH: Tensor,
        weight_VH: Tensor,
        bias_V: Tensor | None,
        target_R: Tensor,
        options: tuple[float, int, torch.dtype],
    ) -> tuple[Tensor, Tensor]:
        factor, chunk_rows, precision = ctx.options = options
        ctx.set_materialize_grads(False)
        wide = torch.promote_types(precision, torch.float32)
        logprob_R = hidden_RH.new_empty(len(hidden_RH), dtype=wide)
        entropy_R = torch.empty_like(logprob_R)
        project = _Projection(weight_VH, bias_V, min(chunk_rows, len(hidden_RH)), precision)
        for start in range(0, len(hidden_RH), chunk_rows):
            logits_rV = project(hidden_RH[start : start + chunk_rows])
            for first, scaled_tV in _tiles(logits_rV, factor, wide):
                rows = slice(start + first, start + first + len(scaled_tV))
                logprob_R[rows], entropy_R[rows] = _statistics(scaled_tV, target_R[rows])
        ctx.save_for_backward(hidden_RH, weight_VH, bias_V, target_R, entropy_R)
        return logprob_R, entropy_R

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_logprob_R: Tensor | None, grad_entropy_R: Tensor | None) -> tuple[Tensor | None, ...]:
        hidden_RH, weight_VH, bias_V, target_R, entropy_R = ctx.saved_tensors
        factor, chunk_rows, precision = ctx.options
        wide = entropy_R.dtype
        if grad_logprob_R is None:
            grad_logprob_R = torch.zeros_like(entropy_R)
        needs_hidden, needs_weight = ctx.needs_input_grad[:2]
        grad_hidden_RH = torch.empty_like(hidden_RH) if needs_hidden else None
        grad_weight_VH = weight_VH.new_zeros(weight_VH.shape, dtype=wide) if needs_weight else None
        grad_bias_V = weight_VH.new_zeros(len(weight_VH), dtype=wide) if bias_V is not None else None
        project = _Projection(weight_VH, bias_V, min(chunk_rows, len(hidden_RH)), precision)
        for start in range(0, len(hidden_RH), chunk_rows):
            rows = slice(start, start + chunk_rows)
            hidden_rH = hidden_RH[rows].to(precision)
            logits_rV = project(hidden_rH)
            for first, scaled_tV in _tiles(logits_rV, factor, wide):
                some = slice(start + first, start + first + len(scaled_tV))
                grads = (grad_logprob_R[some], None if grad_entropy_R is None else grad_entropy_R[some])
                slope_tV = _slopes(scaled_tV, target_R[some], entropy_R[some], *grads)
                # Each row of the buffer turns into its own gradient: nothing else holds V numbers a row.
                logits_rV[first : first + len(slope_tV)] = slope_tV.mul_(factor) if factor != 1.0 else slope_tV
            if grad_hidden_RH is not None:
                grad_hidden_RH[rows] = logits_rV @ project.weight_VH
            if grad_weight_VH is not None:
                _add_product(grad_weight_VH, logits_rV.t(), hidden_rH)
            if grad_bias_V is not None:
                grad_bias_V += logits_rV.sum(dim=0, dtype=wide)
        return (
            grad_hidden_RH,
            None if grad_weight_VH is None else grad_weight_VH.to(weight_VH.dtype),
            None if grad_bias_V is None or bias_V is None else grad_bias_V.to(bias_V.dtype),
            None,
            None,
        )


class _Projection:
    """The head's product in one precision, into one buffer."""

    def __init__(self, weight_VH: Tensor, bias_V: Tensor | None, rows: int, precision: torch.dtype) -> None:
        self.weight_VH = weight_VH.detach().to(precision)
        self._bias_V = None if bias_V is None else bias_V.detach().to(precision)
        self._buffer_rV = self.weight_VH.new_empty(rows, len(weight_VH))

    def __call__(self, hidden_rH: Tensor) -> Tensor:
        """Return logits of some rows; the next call overwrites them."""
        logits_rV = self._buffer_rV[: len(hidden_rH)]
        # Autocast knows no product into a given buffer; the operands are in its precision already.
        with torch.autocast(hidden_rH.device.type, enabled=False):
            torch.mm(hidden_rH.detach().to(self.weight_VH.dtype), self.weight_VH.t(), out=logits_rV)
        return logits_rV if self._bias_V is None else logits_rV.add_(self._bias_V)


def tile_rows(logits_RV: Tensor) -> int:
    """Return how many rows pointwise work on logits takes at once: all on an accelerator, some megabytes on a CPU."""
    if logits_RV.device.type == "cpu":
        return max(1, _TILE_VALUES // logits_RV.shape[-1])
    return max(1, len(logits_RV))


def _tiles(logits_rV: Tensor, factor: float, wide: torch.dtype) -> Any:
    """Give (first row, logits times the factor in wide precision) of a few rows at a time, in one buffer."""
    step = tile_rows(logits_rV)
    buffer_tV = logits_rV.new_empty(min(step, len(logits_rV)), logits_rV.shape[1], dtype=wide)
    for first in range(0, len(logits_rV), step):
        some_tV = logits_rV[first : first + step]
        scaled_tV = buffer_tV[: len(some_tV)]
        scaled_tV.copy_(some_tV)
        yield first, scaled_tV.mul_(factor) if factor != 1.0 else scaled_tV


def _statistics(scaled_tV: Tensor, target_t: Tensor) -> tuple[Tensor, Tensor]:
    prob_tV = torch.softmax(scaled_tV, dim=-1)
    # The largest probability is exp(top) over the sum of all, so the sum's logarithm needs no pass over exponentials.
    log_sum_t = scaled_tV.amax(dim=-1) - prob_tV.amax(dim=-1).log()
    logprob_t = scaled_tV.gather(-1, target_t[:, None])[:, 0] - log_sum_t
    mean_t = prob_tV.mul_(scaled_tV).sum(dim=-1)
    if bool(torch.isnan(mean_t).any()):
        # A token of probability 0 has logit -inf and adds nothing; what is no number stays none.
        mean_t = torch.where(scaled_tV == -torch.inf, 0.0, prob_tV).sum(dim=-1)
    return logprob_t, log_sum_t - mean_t


def _slopes(
    scaled_tV: Tensor, target_t: Tensor, entropy_t: Tensor, grad_logprob_t: Tensor, grad_entropy_t: Tensor | None
) -> Tensor:
    """Return the gradient by the scaled logits; may overwrite them."""
    if grad_entropy_t is None:
        slope_tV = torch.softmax(scaled_tV, dim=-1).mul_(-grad_logprob_t[:, None])
    else:
        logprob_tV = torch.log_softmax(scaled_tV, dim=-1).clamp(min=torch.finfo(scaled_tV.dtype).min)
        inner_tV = grad_entropy_t[:, None] * (logprob_tV + entropy_t[:, None]) + grad_logprob_t[:, None]
        slope_tV = -logprob_tV.exp() * inner_tV
    return slope_tV.scatter_add_(-1, target_t[:, None], grad_logprob_t[:, None])


def _add_product(total_VH: Tensor, left_Vr: Tensor, right_rH: Tensor) -> None:
    """Add a product to a float32 total, in place where precisions agree, else rounded once a chunk."""
    with torch.autocast(total_VH.device.type, enabled=False):
        if left_Vr.dtype == total_VH.dtype:
            total_VH.addmm_(left_Vr, right_rH)
            return
        # Block by block: a sum of two precisions converts the whole summand first.
        for start in range(0, len(total_VH), _BLOCK_TOKENS):
            rows = slice(start, start + _BLOCK_TOKENS)
            total_VH[rows].add_(left_Vr[rows] @ right_rH)
