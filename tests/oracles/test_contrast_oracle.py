"""Equations 5 to 8 against plain loops in float64."""

import math

import numpy as np
import pytest
import torch

from rangeline.rewards.anchor_contrast import contrast_scores, standardised
from rangeline.rewards.anchor_set import AnchorSet
from rangeline.rewards.head_training import HeadSettings, train_head
from rangeline.rewards.metric_head import HeadShape, MetricHead, contrast, set_contrastive_loss


def loop_projection(head, hidden):
    """Return f of one vector by loops."""
    weights = {name: item.double().numpy() for name, item in head.state_dict().items()}
    standard = [(h - m) / s for h, m, s in zip(hidden, weights["mean_H"], weights["scale_H"], strict=True)]
    inner = []
    for row, bias in zip(weights["first.weight"], weights["first.bias"], strict=True):
        value = sum(w * x for w, x in zip(row, standard, strict=True)) + bias
        inner.append(value * 0.5 * (1 + math.erf(value / math.sqrt(2))))
    outer = [
        sum(w * x for w, x in zip(row, inner, strict=True)) + bias
        for row, bias in zip(weights["second.weight"], weights["second.bias"], strict=True)
    ]
    length = math.sqrt(sum(x * x for x in outer))
    return [x / length for x in outer]


def loop_score(head, query, positive, negative):
    """Return S+ - S- of one rollout by loops."""

    def side(anchors):
        own = loop_projection(head, query)
        cosines = [sum(a * b for a, b in zip(own, loop_projection(head, y), strict=True)) for y in anchors]
        return math.log(sum(math.exp(cosine / head.shape.temperature) for cosine in cosines))

    return side(positive) - side(negative)


@pytest.fixture(scope="module")
def made():
    """Return a trained head and anchors of three prompts."""
    rng = np.random.default_rng(1)
    anchors = AnchorSet(
        prompt_id_P=("p", "q", "r"),
        positive_PKH=rng.normal(size=(3, 4, 5)),
        negative_PKH=rng.normal(size=(3, 4, 5)),
        query_PMH=rng.normal(size=(3, 2, 5)),
    )
    head, _ = train_head(anchors, HeadSettings(width=6, dimension=4, max_epochs=3), seed=0)
    return head, anchors


def test_scores_equal_the_loops(made):
    """Scores of a trained head agree to 1e-4 of a score that may be 20."""
    head, anchors = made
    hidden = np.random.default_rng(2).normal(size=(6, 5)).astype(np.float32)
    ids = ("p", "q", "r", "q", "p", "r")
    actual = contrast_scores(hidden, ids, head=head, anchors=anchors)
    for row, prompt_id, score in zip(hidden, ids, actual, strict=True):
        p = anchors.prompt_id_P.index(prompt_id)
        assert loop_score(head, row, anchors.positive_PKH[p], anchors.negative_PKH[p]) == pytest.approx(score, abs=1e-4)


def test_the_held_out_loss_equals_the_loops():
    """In float64 the loss of three prompts and two queries is that of the loops to 1e-12."""
    rng = np.random.default_rng(3)
    head = MetricHead(HeadShape(hidden_size=5, width=6, dimension=4)).double()
    parts = [rng.normal(size=(3, n, 5)) for n in (2, 4, 4)]
    with torch.no_grad():
        query, positive, negative = (head(torch.tensor(part)) for part in parts)
        actual = float(set_contrastive_loss(contrast(query, positive, negative, 0.1)))
    total = 0.0
    for queries, plus, minus in zip(*parts, strict=True):
        for y in queries:
            total += math.log1p(math.exp(-loop_score(head, y, plus, minus)))
    assert total / 3 == pytest.approx(actual, rel=1e-12)


def test_standardised_scores_equal_the_loops():
    """Equation 8 by loops, group by group."""
    score, ids = np.random.default_rng(4).normal(size=9), tuple("ppqrqrrpq")
    actual = standardised(score, ids, delta=1e-4)
    for i, name in enumerate(ids):
        group = [float(s) for s, other in zip(score, ids, strict=True) if other == name]
        mean = sum(group) / len(group)
        std = math.sqrt(sum((s - mean) ** 2 for s in group) / len(group))
        assert (float(score[i]) - mean) / (std + 1e-4) == pytest.approx(actual[i], rel=1e-12)
