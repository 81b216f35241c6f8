"""Anchors of prompts as representations: K on the desirable side, K on the undesirable side, and initial rollouts.

Shapes: P prompts, K anchors a side, M initial rollouts a prompt (queries), H hidden size.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rangeline.errors import AnchorError
from rangeline.records import BoolArray
from rangeline.rollout.representation import HiddenArray

_MIN_ANCHORS = 2


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class AnchorSet:
    """Representations of the anchors and of the initial policy's own rollouts, prompt by prompt."""

    prompt_id_P: tuple[str, ...]
    positive_PKH: HiddenArray
    """float32, finite; completions sampled under the positive condition."""
    negative_PKH: HiddenArray
    """float32, finite; completions sampled under the negative condition."""
    query_PMH: HiddenArray
    """float32, finite; completions sampled without a condition."""

    def __post_init__(self) -> None:
        """Check shapes, ids and finiteness; freeze the arrays."""
        for name in ("positive_PKH", "negative_PKH", "query_PMH"):
            array = np.array(getattr(self, name), dtype=np.float32, copy=True)
            array.flags.writeable = False
            object.__setattr__(self, name, array)
            self._check(name, array)
        if self.positive_PKH.shape != self.negative_PKH.shape or self.query_PMH.shape[2] != self.positive_PKH.shape[2]:
            shapes = [self.positive_PKH.shape, self.negative_PKH.shape, self.query_PMH.shape]
            msg = f"Anchors of both sides and queries must fit each other; got shapes {shapes}. Make the anchors again."
            raise AnchorError(msg)
        if self.positive_PKH.shape[1] < _MIN_ANCHORS:
            msg = (
                f"'K' must be at least {_MIN_ANCHORS} anchors a side; got {self.positive_PKH.shape[1]}. One anchor is "
                "no set: raise anchors.count."
            )
            raise AnchorError(msg)
        if len(set(self.prompt_id_P)) < len(self.prompt_id_P):
            twice = next(item for item in self.prompt_id_P if self.prompt_id_P.count(item) > 1)
            msg = f"'prompt_id_P' must be distinct; got '{twice}' twice. Make the anchors again."
            raise AnchorError(msg)

    def _check(self, name: str, array: HiddenArray) -> None:
        if array.ndim != 3 or len(array) != len(self.prompt_id_P) or not array.shape[1]:
            msg = (
                f"'{name}' must have shape (prompts, rows, hidden) for {len(self.prompt_id_P)} prompts; got "
                f"{array.shape}. Make the anchors again."
            )
            raise AnchorError(msg)
        bad = np.argwhere(~np.isfinite(array))
        if bad.size:
            p, k, h = (int(v) for v in bad[0])
            msg = (
                f"'{name}' must be finite; got {array[p, k, h]} (prompt '{self.prompt_id_P[p]}', row {k}). Look for an "
                "empty completion or a broken model, and make the anchors again."
            )
            raise AnchorError(msg)

    def __len__(self) -> int:
        """Return P."""
        return len(self.prompt_id_P)

    @property
    def equal_P(self) -> BoolArray:
        """True where both sides hold the same representations: nothing can be compared there, every score is 0."""
        return np.array(
            [_same_rows(a, b) for a, b in zip(self.positive_PKH, self.negative_PKH, strict=True)], dtype=bool
        )

    def select(self, rows: Sequence[int]) -> "AnchorSet":
        """Return the anchors of some prompts, by their positions."""
        index = list(rows)
        return AnchorSet(
            prompt_id_P=tuple(self.prompt_id_P[i] for i in index),
            positive_PKH=self.positive_PKH[index],
            negative_PKH=self.negative_PKH[index],
            query_PMH=self.query_PMH[index],
        )


def _same_rows(a_KH: HiddenArray, b_KH: HiddenArray) -> bool:
    return sorted(row.tobytes() for row in a_KH) == sorted(row.tobytes() for row in b_KH)
