"""One step of supervised training, for the warm-up: on target tokens, or on a set of next tokens that are all right.

It computes one optimiser step on the negative log-likelihood of the targets given their prompts.
Loss = -(1/M) sum_ik log p(y_ik | x_i, y_i,<k), at temperature 1 or that of the update settings; with a set of n choices
it is -(1/B) sum_i (1/n) sum_c log p(c | x_i), least where all choices are alike likely and nothing else is.
It is divided by M, the number of target tokens of all rows, or by B rows and n choices, so that micro-batches change
nothing.
Prompt tokens are left out of the loss: only the answer is taught.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rangeline.errors import BadInputError, ConfigError, NonFiniteError
from rangeline.policy.batch import IntArray, group_by_length, pad_rows
from rangeline.policy.trainer import PolicyTrainer


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisedRow:
    """Token ids of one prompt and of the answer to teach."""

    prompt_ids: tuple[int, ...]
    target_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceRow:
    """Token ids of one prompt, and the next tokens that are all right after it."""

    prompt_ids: tuple[int, ...]
    choice_ids: tuple[int, ...]


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
    groups = _groups(trainer, rows)
    norm = trainer.step(
        _losses(trainer, rows, groups, (pad_id, num_tokens), values),
        num_losses=len(groups),
        learning_rate=learning_rate,
    )
    return SupervisedReport(
        loss=trainer.world.total([sum(values)])[0],
        grad_norm=norm,
        num_rows=len(rows),
        num_tokens=num_tokens,
        seconds=time.perf_counter() - started,
    )


def choice_update(
    trainer: PolicyTrainer, rows: Sequence[ChoiceRow], *, pad_id: int, learning_rate: float | None = None
) -> SupervisedReport:
    """Take one optimiser step towards choosing among the next tokens of each row alike.

    Parameters
    ----------
    trainer
        Holds the policy; changed in place.
    rows
        Prompts and choices, each of at least one token; every row has the same number of choices.
    pad_id
        Token id that fills the padding.
    learning_rate
        Of this step; None means that of the trainer's settings.

    Raises
    ------
    BadInputError
        When there is no row, a prompt is empty, or the numbers of choices differ or are 0.
    ConfigError
        When there are several processes: only the warm-up takes such steps, and it runs in one.
    NonFiniteError
        When the loss or its gradient is not finite.
    """
    started = time.perf_counter()
    if trainer.world.size > 1:
        msg = f"A choice step must be taken in one process; got {trainer.world.size}. Warm the policy up by itself."
        raise ConfigError(msg)
    num_choices = {len(row.choice_ids) for row in rows}
    if len(num_choices) != 1 or 0 in num_choices or not all(row.prompt_ids for row in rows):
        msg = (
            f"'rows' must be one or more prompts of a token and more, with one number of choices; got {len(rows)} rows "
            f"and {sorted(num_choices)} choices (supervised step). Correct the rows."
        )
        raise BadInputError(msg)
    ordered = sorted(rows, key=lambda row: (row.prompt_ids, row.choice_ids))
    arrays = pad_rows([row.prompt_ids for row in ordered], [() for _ in ordered], pad_id=pad_id)
    tokens = trainer.tensors(*arrays)
    last_B = tokens.attention_mask_BL.sum(dim=1) - 1
    logits_BLV = trainer.model(input_ids=tokens.token_ids_BL, attention_mask=tokens.attention_mask_BL).logits
    logprob_BV = torch.log_softmax(logits_BLV[torch.arange(len(rows), device=last_B.device), last_B].float(), dim=-1)
    choice_BN = torch.tensor([row.choice_ids for row in ordered], device=last_B.device)
    loss = -logprob_BV.gather(1, choice_BN).mean()
    _require_finite(float(loss.detach()))
    norm = trainer.step([loss], learning_rate=learning_rate)
    return SupervisedReport(
        loss=float(loss.detach()),
        grad_norm=norm,
        num_rows=len(rows),
        num_tokens=len(rows),
        seconds=time.perf_counter() - started,
    )


def _require_finite(value: float) -> None:
    if not np.isfinite(value):
        msg = f"'loss' must be finite; got {value} (supervised step). Lower the learning rate."
        raise NonFiniteError(msg)


def _groups(trainer: PolicyTrainer, rows: Sequence[SupervisedRow]) -> list[IntArray]:
    """Divide the rows among processes, then into micro-batches."""
    lengths_B = np.array([len(row.prompt_ids) + len(row.target_ids) for row in rows], dtype=np.int64)
    # Token ids break ties, so that the order of the rows changes nothing.
    ordered = sorted(range(len(rows)), key=lambda i: (-int(lengths_B[i]), rows[i].prompt_ids, rows[i].target_ids))
    mine = ordered[trainer.world.rank :: trainer.world.size]
    return group_by_length(mine, lengths_B, max_batch_tokens=trainer.settings.micro_batch_tokens)


def _losses(
    trainer: PolicyTrainer,
    rows: Sequence[SupervisedRow],
    groups: Sequence[IntArray],
    counts: tuple[int, int],
    values: list[float],
) -> Iterator[Tensor]:
    pad_id, num_tokens = counts
    for index in groups:
        arrays = pad_rows([rows[i].prompt_ids for i in index], [rows[i].target_ids for i in index], pad_id=pad_id)
        logprob_BL, _ = trainer.logprobs(trainer.tensors(*arrays))
        loss = -logprob_BL.sum() / num_tokens
        value = float(loss.detach())
        _require_finite(value)
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
