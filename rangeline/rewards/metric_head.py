"""The metric head of RRPO: project representations, and contrast a rollout with two sets of anchors.

Computes S+ and S-, the aggregate alignment of a rollout with the positive and the negative anchors of its prompt.
S = log sum_k exp(f(y)' f(y_k) / tau), with f = g / ||g||, g a GELU network of two layers; loss = -log sigma(S+ - S-).
Alignments are divided by the temperature tau; the loss is a sum over a prompt's queries, averaged over prompts (eq. 7).
Nothing of RRPO 3.2 is left out. Ours: the width of the inner layer, and inputs standardised by the training prompts,
which is part of the first layer's affine map and keeps a few large hidden dimensions from hiding all others.

Shapes: P prompts, M queries, K anchors a side, H hidden size, D projection. `...` any leading dimensions.
"""

import json
from dataclasses import asdict, dataclass
from typing import Any, Self

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from rangeline.errors import AnchorError
from rangeline.rollout.representation import HiddenArray

_FORMAT = 1
_SCALE_FLOOR = 1e-6
"""A hidden dimension that never varies is left at 0, not divided by its rounding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadShape:
    """Sizes of a head and the temperature it was trained at."""

    hidden_size: int
    width: int = 512
    dimension: int = 512
    temperature: float = 0.1


class MetricHead(nn.Module):
    """Two layers with a GELU between, and vectors of length one.

    Parameters
    ----------
    shape
        Sizes and temperature; all positive.

    Raises
    ------
    AnchorError
        When a size or the temperature is not positive.
    """

    mean_H: Tensor
    scale_H: Tensor

    def __init__(self, shape: HeadShape) -> None:
        super().__init__()
        for name, value in asdict(shape).items():
            if not value > 0:
                msg = f"'{name}' must be positive; got {value} (metric head). Correct the head settings."
                raise AnchorError(msg)
        self.shape = shape
        self.first = nn.Linear(shape.hidden_size, shape.width)
        self.second = nn.Linear(shape.width, shape.dimension)
        self.register_buffer("mean_H", torch.zeros(shape.hidden_size))
        self.register_buffer("scale_H", torch.ones(shape.hidden_size))

    def forward(self, hidden: Tensor) -> Tensor:
        """Return f of shape (..., D), each of length one, for hidden states of shape (..., H)."""
        standard = (hidden - self.mean_H) / self.scale_H
        projected = self.second(nn.functional.gelu(self.first(standard)))
        return nn.functional.normalize(projected, dim=-1)

    @torch.no_grad()
    def standardise_by(self, hidden_NH: Tensor) -> None:
        """Set the mean and scale of the inputs from N training representations."""
        self.mean_H.copy_(hidden_NH.mean(dim=0))
        scale_H = hidden_NH.std(dim=0, correction=0)
        self.scale_H.copy_(torch.where(scale_H > _SCALE_FLOOR, scale_H, torch.ones_like(scale_H)))

    @torch.inference_mode()
    def project(self, hidden: HiddenArray) -> Tensor:
        """Return f of an array of hidden states, without gradients."""
        projected: Tensor = self(torch.tensor(hidden, dtype=self.mean_H.dtype))
        return projected

    def to_bytes(self) -> bytes:
        """Return weights as safetensors, shape and temperature in its metadata."""
        # One entry: safetensors writes several in an order that differs from process to process.
        about = {"shape": json.dumps({"format": _FORMAT, **asdict(self.shape)}, sort_keys=True)}
        return save({name: item.contiguous() for name, item in self.state_dict().items()}, metadata=about)

    @classmethod
    def from_bytes(cls, content: bytes, shape: HeadShape) -> Self:
        """Return a frozen head of a given shape.

        Raises
        ------
        AnchorError
            When the bytes are no safetensors, or not of this shape.
        """
        try:
            head = cls(shape)
            head.load_state_dict(load(content))
        except (SafetensorError, RuntimeError, ValueError) as error:
            reason = " ".join(str(error).split())[:200]
            msg = f"Metric head must be safetensors of {shape}; got {reason}. Train it again: 'rangeline anchors'."
            raise AnchorError(msg) from error
        head.requires_grad_(requires_grad=False)
        return head.eval()


def alignment(query: Tensor, anchor: Tensor, temperature: float) -> Tensor:
    """Return how well queries agree with a set of anchors, ``S = log sum_k exp(q' a_k / tau)``.

    Parameters
    ----------
    query
        Unit vectors, (..., M, D).
    anchor
        Unit vectors of the same leading dimensions, (..., K, D).
    temperature
        tau, positive.

    Returns
    -------
    Tensor
        (..., M), between log K - 1/tau and log K + 1/tau.

    Notes
    -----
    RRPO equation 5: a sum over the set, not its mean or its maximum.
    """
    return torch.logsumexp(query @ anchor.transpose(-1, -2) / temperature, dim=-1)


def contrast(query: Tensor, positive: Tensor, negative: Tensor, temperature: float) -> Tensor:
    """Return ``R = S+ - S-`` of shape (..., M), between -2/tau and 2/tau; shapes as in `alignment`."""
    return alignment(query, positive, temperature) - alignment(query, negative, temperature)


def set_contrastive_loss(score: Tensor) -> Tensor:
    """Return ``mean over prompts of the sum over queries of -log sigma(R)`` for scores of shape (P, M).

    Notes
    -----
    RRPO equations 6 and 7.
    """
    return -nn.functional.logsigmoid(score).sum(dim=-1).mean()


def shape_from(values: dict[str, Any]) -> HeadShape:
    """Return the shape that stored settings name.

    Raises
    ------
    AnchorError
        When a field is missing or unknown.
    """
    try:
        return HeadShape(**values)
    except TypeError as error:
        msg = f"Metric head must say its shape; got {values}. Train it again: 'rangeline anchors'."
        raise AnchorError(msg) from error
