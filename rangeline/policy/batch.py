"""Turn rollouts and their advantages into one padded batch, its masks and its global counts.

It computes token, attention and loss masks of prompt + completion, right-padded, and the weight of every token.
A token of rollout i weighs 1/(N L_max) under `dr_grpo`, 1/(N |o_i|) under `grpo` and 1/(sum_j |o_j|) under `dapo`.
All three divide by counts of the whole batch (N counts every rollout, missing and inactive ones too), so that
micro-batches, padding and the dropping of rows without signal change nothing.
It leaves out packing of several rollouts into one row, because positions and masks would then depend on the layout.

Shapes: B rollouts, L prompt and completion tokens (padded), P prompts.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rangeline.errors import BadInputError
from rangeline.records import Advantages, BoolArray, FloatArray, RolloutSet

IntArray = NDArray[np.int64]
Aggregation = Literal["dr_grpo", "grpo", "dapo"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaughtRow:
    """A text to learn beside the policy gradient: VeriFree's second term, or a supervised target."""

    prompt_id: str
    prompt_ids: tuple[int, ...]
    """What comes before, a rollout's reasoning included; no gradient flows from it."""
    target_ids: tuple[int, ...]
    weight: float
    """Factor of the target's log-likelihood in the objective, before the batch's normaliser."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PolicyBatch:
    """All rollouts of one iteration as padded arrays; completion tokens are where `loss_mask_BL` is True."""

    prompt_id_B: tuple[str, ...]
    sample_B: tuple[int, ...]
    """Number of the rollout inside its group."""
    token_ids_BL: IntArray
    """Prompt then completion, padded on the right with the pad id."""
    attention_mask_BL: BoolArray
    loss_mask_BL: BoolArray
    """True at completion tokens."""
    sampled_logprobs_BL: NDArray[np.float32]
    """The engine's log-probs at completion tokens; 0 elsewhere and never read there."""
    advantage_B: FloatArray
    """Exactly 0 for rollouts without signal."""
    completion_lengths_B: IntArray
    group_sizes: dict[str, int]
    """Rollouts of each prompt id."""
    max_tokens: int
    """L_max, the completion cap of the sampling plan."""
    policy_version: int
    """Version of the policy that sampled the rollouts."""
    taught: tuple[TaughtRow, ...] = ()
    """Texts to learn beside the policy gradient."""

    def __post_init__(self) -> None:
        """Copy the arrays, so that nobody else can change them."""
        for name in (
            "token_ids_BL",
            "attention_mask_BL",
            "loss_mask_BL",
            "sampled_logprobs_BL",
            "advantage_B",
            "completion_lengths_B",
        ):
            array = np.array(getattr(self, name), copy=True)
            array.flags.writeable = False
            object.__setattr__(self, name, array)

    def __len__(self) -> int:
        """Return B, all rollouts."""
        return len(self.prompt_id_B)

    @property
    def num_groups(self) -> int:
        """Return P, the number of prompts."""
        return len(self.group_sizes)

    @property
    def lengths_B(self) -> IntArray:
        """Tokens of each row, prompt included."""
        lengths: IntArray = self.attention_mask_BL.sum(axis=1, dtype=np.int64)
        return lengths


def build_batch(
    rollouts: RolloutSet,
    advantages: Advantages,
    *,
    pad_id: int,
    max_tokens: int,
    trained_tokens: Sequence[int] | None = None,
    taught: Sequence[TaughtRow] = (),
) -> PolicyBatch:
    """Pad rollouts into one batch and attach their advantages.

    Parameters
    ----------
    rollouts
        N rollouts of one policy version; each (prompt id, sample) occurs once.
    advantages
        N advantages, row for row with the rollouts: the prompt ids are compared, row by row.
    pad_id
        Token id that fills the padding.
    max_tokens
        L_max, the completion cap that the rollouts were sampled under.
    trained_tokens
        Leading tokens of each completion that carry the policy gradient; None means all.
    taught
        Texts to learn beside it.

    Returns
    -------
    PolicyBatch
        All N rows, those without signal included.

    Raises
    ------
    BadInputError
        When there is no rollout, rows do not match, a rollout occurs twice, a prompt has no token, or a completion is
        longer than the cap.
    """
    _check_rows(rollouts, advantages, max_tokens)
    token_ids_BL, attention_mask_BL, loss_mask_BL = pad_rows(
        rollouts.prompt_token_ids_N, rollouts.token_ids_N, pad_id=pad_id
    )
    sampled_logprobs_BL = np.zeros(token_ids_BL.shape, dtype=np.float32)
    # Row-major order of the mask is the order of the concatenated completions.
    sampled_logprobs_BL[loss_mask_BL] = [value for row in rollouts.sampled_logprobs_N for value in row]
    if trained_tokens is not None:
        for i, count in enumerate(trained_tokens):
            loss_mask_BL[i, len(rollouts.prompt_token_ids_N[i]) + count :] = False
    return PolicyBatch(
        prompt_id_B=rollouts.prompt_id_N,
        sample_B=rollouts.sample_N,
        token_ids_BL=token_ids_BL,
        attention_mask_BL=attention_mask_BL,
        loss_mask_BL=loss_mask_BL,
        sampled_logprobs_BL=sampled_logprobs_BL,
        advantage_B=advantages.value_N,
        completion_lengths_B=loss_mask_BL.sum(axis=1, dtype=np.int64),
        group_sizes=dict(Counter(rollouts.prompt_id_N)),
        max_tokens=max_tokens,
        policy_version=rollouts.policy_version,
        taught=tuple(taught),
    )


def pad_rows(
    prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]], *, pad_id: int
) -> tuple[IntArray, BoolArray, BoolArray]:
    """Join prompts and completions and pad them on the right.

    Parameters
    ----------
    prompts, completions
        Token ids of each row; a completion may be empty.
    pad_id
        Token id that fills the padding.

    Returns
    -------
    tuple of arrays
        Token ids (B, L), attention mask (B, L), and the mask of completion tokens (B, L).
    """
    ends = [len(p) + len(c) for p, c in zip(prompts, completions, strict=True)]
    shape = (len(ends), max(ends, default=0))
    token_ids_BL = np.full(shape, pad_id, dtype=np.int64)
    attention_mask_BL, loss_mask_BL = np.zeros(shape, dtype=bool), np.zeros(shape, dtype=bool)
    for i, end in enumerate(ends):
        token_ids_BL[i, :end] = [*prompts[i], *completions[i]]
        attention_mask_BL[i, :end] = True
        loss_mask_BL[i, len(prompts[i]) : end] = True
    return token_ids_BL, attention_mask_BL, loss_mask_BL


def token_weights(batch: PolicyBatch, aggregation: Aggregation) -> FloatArray:
    """Return the weight of one completion token of each rollout, from counts of the whole batch.

    Parameters
    ----------
    batch
        The whole batch; weights are computed before any row is left out.
    aggregation
        `dr_grpo`: 1/(N L_max). `grpo`: 1/(N |o_i|). `dapo`: 1/(sum_j |o_j|).

    Returns
    -------
    FloatArray
        float64 of shape (B,).

    Raises
    ------
    BadInputError
        When the aggregation is unknown.

    Notes
    -----
    `dr_grpo`: Understanding R1-Zero-like training (2025); `grpo`: DeepSeekMath (2024); `dapo`: DAPO (2025), here over
    the whole batch. That N counts missing and inactive rollouts is ours: a lost reward never raises the others.
    """
    num_rollouts, lengths_B = len(batch), batch.completion_lengths_B
    if aggregation == "dr_grpo":
        return np.full(num_rollouts, 1.0 / (num_rollouts * batch.max_tokens))
    if aggregation == "grpo":
        return 1.0 / (num_rollouts * np.maximum(lengths_B, 1))
    if aggregation == "dapo":
        return np.full(num_rollouts, 1.0 / max(int(lengths_B.sum()), 1))
    msg = (
        f"'aggregation' must be one of dr_grpo, grpo, dapo; got '{aggregation}' (policy settings). Choose one of them."
    )
    raise BadInputError(msg)


def taught_weights(batch: PolicyBatch, aggregation: Aggregation) -> FloatArray:
    """Return the weight of one target token of each text to learn: its factor over the batch's normaliser.

    The normaliser is that of `token_weights`, with the target's length in place of the completion's under `grpo`.
    """
    num_rollouts = len(batch)
    lengths = np.array([len(row.target_ids) for row in batch.taught], dtype=np.float64)
    factors = np.array([row.weight for row in batch.taught], dtype=np.float64)
    if aggregation == "dr_grpo":
        return factors / (num_rollouts * batch.max_tokens)
    if aggregation == "grpo":
        return factors / (num_rollouts * lengths)
    return factors / max(int(batch.completion_lengths_B.sum()), 1)


def rows_with_loss(batch: PolicyBatch, *, keep_zero_advantage: bool) -> IntArray:
    """Return the rows that can change the loss.

    A row without completion tokens never can. A row with advantage exactly 0 can only through a KL or entropy term.

    Parameters
    ----------
    batch
        The whole batch.
    keep_zero_advantage
        True when a KL or entropy term is on.

    Returns
    -------
    IntArray
        Row numbers, increasing.
    """
    useful_B = batch.completion_lengths_B > 0
    if not keep_zero_advantage:
        useful_B &= batch.advantage_B != 0
    return np.flatnonzero(useful_B)


def micro_batches(batch: PolicyBatch, rows: Sequence[int] | IntArray, *, max_batch_tokens: int) -> list[IntArray]:
    """Divide rows into micro-batches, each within a budget of padded tokens.

    Rows are sorted by length, or, where fewer tokens are read so, by prompt, because the rows of a prompt that are
    together share its reading. Ties go by prompt id and sample number, so that the order of the batch changes nothing.

    Parameters
    ----------
    batch
        The whole batch.
    rows
        Row numbers to divide.
    max_batch_tokens
        Rows times longest row of a micro-batch, at most; a longer single row gets a micro-batch of its own.

    Returns
    -------
    list of IntArray
        Row numbers of each micro-batch, longest rows first.
    """
    lengths_B = batch.lengths_B
    by_length = sorted(
        (int(i) for i in rows), key=lambda i: (-int(lengths_B[i]), batch.prompt_id_B[i], batch.sample_B[i])
    )
    longest: dict[str, int] = {}
    for i in by_length:
        longest.setdefault(batch.prompt_id_B[i], int(lengths_B[i]))
    by_prompt = sorted(by_length, key=lambda i: (-longest[batch.prompt_id_B[i]], batch.prompt_id_B[i]))
    ways = [group_by_length(order, lengths_B, max_batch_tokens=max_batch_tokens) for order in (by_length, by_prompt)]
    return min(ways, key=lambda groups: sum(_tokens_read(batch, lengths_B, group) for group in groups))


def _tokens_read(batch: PolicyBatch, lengths_B: IntArray, group: IntArray) -> int:
    """Return the padded tokens of a micro-batch when each of its prompts is read once."""
    prompts_B = batch.loss_mask_BL[group].argmax(axis=1)
    num_prompts = len({batch.prompt_id_B[i] for i in group})
    rests_B = lengths_B[group] - prompts_B
    return int(num_prompts * prompts_B.max() + len(group) * rests_B.max())


def group_by_length(ordered: Sequence[int], lengths_B: IntArray, *, max_batch_tokens: int) -> list[IntArray]:
    """Cut rows, in the order given, into groups whose rows times longest row are within a budget of tokens."""
    groups: list[list[int]] = []
    longest = 0
    for i in ordered:
        longest = max(longest, int(lengths_B[i]))
        if groups and (len(groups[-1]) + 1) * longest <= max_batch_tokens:
            groups[-1].append(i)
        else:
            groups.append([i])
            longest = int(lengths_B[i])
    return [np.array(group, dtype=np.int64) for group in groups]


def _check_rows(rollouts: RolloutSet, advantages: Advantages, max_tokens: int) -> None:
    if len(rollouts) == 0:
        msg = "'rollouts' must hold at least one row; got 0. Draw more prompts."
        raise BadInputError(msg)
    if len(rollouts) != len(advantages.prompt_id_N):
        msg = (
            f"'advantages' must have one row a rollout; got {len(advantages.prompt_id_N)} for {len(rollouts)}. "
            "Compute them from the intervals of these rollouts."
        )
        raise BadInputError(msg)
    seen: set[tuple[Any, ...]] = set()
    for i, key in enumerate(zip(rollouts.prompt_id_N, rollouts.sample_N, strict=True)):
        if advantages.prompt_id_N[i] != key[0]:
            msg = (
                f"'advantages' must follow the rollouts' prompt ids; got '{advantages.prompt_id_N[i]}' for '{key[0]}' "
                f"(row {i}). Compute them from the intervals of these rollouts."
            )
            raise BadInputError(msg)
        if key in seen:
            msg = f"'rollouts' must hold each sample once; got sample {key[1]} of prompt '{key[0]}' again (row {i})."
            raise BadInputError(msg)
        seen.add(key)
        if not rollouts.prompt_token_ids_N[i]:
            msg = f"'prompt_token_ids_N' must hold at least one token; got 0 (row {i}, prompt '{key[0]}')."
            raise BadInputError(msg)
        if len(rollouts.token_ids_N[i]) > max_tokens:
            msg = (
                f"'token_ids_N' must hold at most {max_tokens} tokens; got {len(rollouts.token_ids_N[i])} (row {i}, "
                f"prompt '{key[0]}'). Give the cap that the rollouts were sampled under."
            )
            raise BadInputError(msg)
