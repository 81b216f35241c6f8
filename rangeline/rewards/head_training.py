"""Train the metric head once, offline, on anchors and rollouts of the initial policy; then it is frozen.

Computes the weights psi that make queries agree more with the positive than with the negative anchors of their prompt.
The formula is min over psi of E_x[sum_m -log sigma(S+ - S-)], by AdamW over batches of prompts.
A batch's loss is divided by its number of prompts, not by its queries (RRPO eq. 7).
Nothing of RRPO 3.2 is left out. Ours: early stopping on held-out prompts, AdamW at 1e-4, and prompts whose two sides
are equal, which have no gradient of meaning, left out and counted.

Every draw comes from the run seed, so that equal anchors give equal bytes on one machine and number of threads.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rangeline.errors import AnchorError, NonFiniteError
from rangeline.records import FloatArray
from rangeline.rewards.anchor_set import AnchorSet
from rangeline.rewards.metric_head import HeadShape, MetricHead, contrast, set_contrastive_loss
from rangeline.seeds import seed_of, stream

_MIN_PROMPTS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadSettings:
    """How the head is trained."""

    width: int = 512
    dimension: int = 512
    temperature: float = 0.1
    learning_rate: float = 1e-4
    weight_decay: float = 0.01
    max_epochs: int = 100
    patience: int = 5
    """Epochs without a better held-out loss before training ends."""
    prompts_per_batch: int = 16
    held_out_share: float = 0.2
    """Of the prompts; at least one is held out and one trained on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadReport:
    """What training found."""

    loss_by_epoch: tuple[float, ...]
    """Training loss a query, from the first epoch on."""
    held_out_by_epoch: tuple[float, ...]
    """Held-out loss a query; the first is before any training, where log 2 = .69 means no preference."""
    best_epoch: int
    """0 where training never bettered the untrained head."""
    anchor_auc: float
    """Share of held-out pairs of a positive and a negative anchor that the head ranks right, each scored without
    itself; .5 says that the conditions made no difference that carries over."""
    num_train: int
    num_held_out: int
    num_equal: int
    """Prompts left out because both their sides are equal."""


def train_head(
    anchors: AnchorSet,
    settings: HeadSettings,
    *,
    seed: int,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[MetricHead, HeadReport]:
    """Train, keep the weights of the best held-out epoch, and freeze.

    Parameters
    ----------
    anchors
        P prompts with K anchors a side and M queries.
    settings
        Sizes, optimiser and stopping.
    seed
        Run seed: keys the split, the start and the order of the batches.
    progress
        Called with (epochs done, most epochs) after each.

    Returns
    -------
    tuple
        The frozen head and its report.

    Raises
    ------
    AnchorError
        When fewer than two prompts have sides that differ: none could be held out.
    NonFiniteError
        When the loss is not finite.
    """
    equal_P = anchors.equal_P
    usable = anchors.select(np.flatnonzero(~equal_P).tolist())
    if len(usable) < _MIN_PROMPTS:
        msg = (
            f"At least {_MIN_PROMPTS} prompts must have anchors whose sides differ; got {len(usable)} of "
            f"{len(anchors)} (metric head). Write conditions that lead further apart, or take more prompts."
        )
        raise AnchorError(msg)
    train, held_out = _split(usable, settings.held_out_share, seed)
    head = _start(train, settings, seed)
    losses, held_losses, best_epoch = _fit(head, train, held_out, settings=settings, seed=seed, progress=progress)
    head.requires_grad_(requires_grad=False)
    report = HeadReport(
        loss_by_epoch=tuple(losses),
        held_out_by_epoch=tuple(held_losses),
        best_epoch=best_epoch,
        anchor_auc=anchor_auc(head, held_out),
        num_train=len(train),
        num_held_out=len(held_out),
        num_equal=int(equal_P.sum()),
    )
    return head.eval(), report


def _split(anchors: AnchorSet, share: float, seed: int) -> tuple[AnchorSet, AnchorSet]:
    count = max(1, min(round(share * len(anchors)), len(anchors) - 1))
    # By the prompts' own ids: their order in the table decides nothing.
    ordered = sorted(range(len(anchors)), key=lambda p: stream(seed, "head/split", anchors.prompt_id_P[p]).random())
    by_id = [sorted(part, key=lambda p: anchors.prompt_id_P[p]) for part in (ordered[count:], ordered[:count])]
    return anchors.select(by_id[0]), anchors.select(by_id[1])


def _start(train: AnchorSet, settings: HeadSettings, seed: int) -> MetricHead:
    size = train.query_PMH.shape[2]
    shape = HeadShape(
        hidden_size=size,
        width=settings.width,
        dimension=settings.dimension,
        temperature=settings.temperature,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_of(seed, "head/start"))
        head = MetricHead(shape)
    parts = (train.query_PMH, train.positive_PKH, train.negative_PKH)
    head.standardise_by(torch.tensor(np.concatenate([part.reshape(-1, size) for part in parts])))
    return head


def _tensors(anchors: AnchorSet) -> tuple[Tensor, Tensor, Tensor]:
    # Copies: the records' arrays are read-only, which tensors do not know.
    return tuple(torch.tensor(a) for a in (anchors.query_PMH, anchors.positive_PKH, anchors.negative_PKH))  # type: ignore[return-value]


def _fit(
    head: MetricHead,
    train: AnchorSet,
    held_out: AnchorSet,
    *,
    settings: HeadSettings,
    seed: int,
    progress: Callable[[int, int], None] | None,
) -> tuple[list[float], list[float], int]:
    parts, held_parts = _tensors(train), _tensors(held_out)
    num, num_queries = len(train), parts[0].shape[1]
    optimizer = torch.optim.AdamW(head.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay)
    losses: list[float] = []
    held_losses, best_epoch = [_held_out_loss(head, held_parts)], 0
    best = {name: item.clone() for name, item in head.state_dict().items()}
    for epoch in range(1, settings.max_epochs + 1):
        total = 0.0
        order = torch.from_numpy(stream(seed, "head/order", epoch).permutation(num))
        for rows in order.split(settings.prompts_per_batch):
            loss = set_contrastive_loss(_scores(head, *(part[rows] for part in parts)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += float(loss.detach()) * len(rows)
        losses.append(_finite(total / (num * num_queries), epoch))
        held_losses.append(_finite(_held_out_loss(head, held_parts), epoch))
        if held_losses[-1] < held_losses[best_epoch]:
            best_epoch, best = epoch, {name: item.clone() for name, item in head.state_dict().items()}
        if progress is not None:
            progress(epoch, settings.max_epochs)
        if epoch - best_epoch >= settings.patience:
            break
    head.load_state_dict(best)
    return losses, held_losses, best_epoch


def _scores(head: MetricHead, query: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
    return contrast(head(query), head(positive), head(negative), head.shape.temperature)


@torch.no_grad()
def _held_out_loss(head: MetricHead, parts: tuple[Tensor, Tensor, Tensor]) -> float:
    return float(set_contrastive_loss(_scores(head, *parts))) / parts[0].shape[1]


def _finite(loss: float, epoch: int) -> float:
    if not np.isfinite(loss):
        msg = f"The metric head's loss must be finite; got {loss} (epoch {epoch}). Lower metric_head.learning_rate."
        raise NonFiniteError(msg)
    return loss


def anchor_auc(head: MetricHead, anchors: AnchorSet) -> float:
    """Return how often a positive anchor scores above a negative one of its prompt, ties counted half.

    Each anchor is scored against its own side without itself, and against the other side without the one of its
    number, so that both sides have K - 1.

    Parameters
    ----------
    head
        Frozen head.
    anchors
        Prompts that took no part in training, or the figure flatters.
    """
    positive, negative = (head.project(part) for part in (anchors.positive_PKH, anchors.negative_PKH))
    scores: dict[str, list[FloatArray]] = {"positive": [], "negative": []}
    count = positive.shape[1]
    for k in range(count):
        others = [i for i in range(count) if i != k]
        for name, side in (("positive", positive), ("negative", negative)):
            score = contrast(side[:, k : k + 1], positive[:, others], negative[:, others], head.shape.temperature)
            scores[name].append(score[:, 0].double().numpy())
    above_PKK = np.stack(scores["positive"], axis=1)[:, :, None] - np.stack(scores["negative"], axis=1)[:, None, :]
    return float(np.where(above_PKK == 0, 0.5, above_PKK > 0).mean())
