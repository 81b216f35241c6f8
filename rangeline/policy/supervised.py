"""One step of supervised training on prompts and their target tokens, for the warm-up.

It computes one optimiser step on the negative log-likelihood of the targets given their prompts.
Loss = -(1/M) sum_ik log p(y_ik | x_i, y_i,<k), at temperature 1 or that of the update settings.
It is divided by M, the number of target tokens of all rows, so that micro-batches change nothing.
Prompt tokens are left out of the loss: only the answer is taught.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from rangeline.errors import BadInputError, NonFiniteError
from rangeline.policy.batch import group_by_length, pad_rows
from rangeline.policy.trainer import PolicyTrainer


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisedRow:
    """Token ids of one prompt and of the answer to teach."""

    prompt_ids: tuple[int, ...]
    target_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisedReport:
    """Finite numbers of one supervised step."""

    loss: float
    """Mean negative log-likelihood of a target token, before the step."""
    grad_norm: float
    num_rows: int
    num_tokens: int
    seconds: float


def supervised_update(
    trainer: PolicyTrainer, rows: Sequence[SupervisedRow], *, pad_id: int, learning_rate: float | None = None
) -> SupervisedReport:
    """Take one optimiser step on the targets of all rows.

    Parameters
    ----------
    trainer
        Holds the policy; changed in place.
    rows
        Prompts and targets, each of at least one token.
    pad_id
        Token id that fills the padding.
    learning_rate
        Of this step; None means that of the trainer's settings.

    Returns
    -------
    SupervisedReport
        Loss before the step, and counts.

    Raises
    ------
    BadInputError
        When there is no row, or a prompt or target is empty.
    NonFiniteError
        When the loss or its gradient is not finite.
    """
    started = time.perf_counter()
    _check_rows(rows)
    num_tokens = sum(len(row.target_ids) for row in rows)
    values: list[float] = []
    norm = trainer.step(_losses(trainer, rows, pad_id, num_tokens, values), learning_rate=learning_rate)
    return SupervisedReport(
        loss=sum(values),
        grad_norm=norm,
        num_rows=len(rows),
        num_tokens=num_tokens,
        seconds=time.perf_counter() - started,
    )


def _losses(
    trainer: PolicyTrainer, rows: Sequence[SupervisedRow], pad_id: int, num_tokens: int, values: list[float]
) -> Iterator[Tensor]:
    lengths_B = np.array([len(row.prompt_ids) + len(row.target_ids) for row in rows], dtype=np.int64)
    # Token ids break ties, so that the order of the rows changes nothing.
    ordered = sorted(range(len(rows)), key=lambda i: (-int(lengths_B[i]), rows[i].prompt_ids, rows[i].target_ids))
    for index in group_by_length(ordered, lengths_B, max_batch_tokens=trainer.settings.micro_batch_tokens):
        arrays = pad_rows([rows[i].prompt_ids for i in index], [rows[i].target_ids for i in index], pad_id=pad_id)
        logprob_BL, _ = trainer.logprobs(trainer.tensors(*arrays))
        loss = -logprob_BL.sum() / num_tokens
        value = float(loss.detach())
        if not np.isfinite(value):
            msg = f"'loss' must be finite; got {value} (supervised step). Lower the learning rate."
            raise NonFiniteError(msg)
        values.append(value)
        yield loss


def _check_rows(rows: Sequence[SupervisedRow]) -> None:
    if not rows:
        msg = "'rows' must hold at least one row; got 0 (supervised step). Add labelled prompts."
        raise BadInputError(msg)
    for i, row in enumerate(rows):
        for name in ("prompt_ids", "target_ids"):
            if not getattr(row, name):
                msg = f"'{name}' must hold at least one token; got 0 (row {i}). Correct the prompt or its reference."
                raise BadInputError(msg)
