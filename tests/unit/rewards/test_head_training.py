"""Training the metric head: it finds what sets sides apart, nothing where nothing does, and repeats itself."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from rangeline.errors import AnchorError, NonFiniteError
from rangeline.rewards.anchor_set import AnchorSet
from rangeline.rewards.head_training import HeadSettings, anchor_auc, train_head

SETTINGS = HeadSettings(width=16, dimension=8, learning_rate=1e-2, max_epochs=30, patience=6, prompts_per_batch=8)


def _anchors(apart, num=24, *, count=3, hidden=6, seed=0):
    """Make prompts of their own place, whose sides lie `apart` in one shared direction; queries lie in between."""
    rng = np.random.default_rng(seed)
    place, step = rng.normal(size=(num, 1, hidden)), np.eye(hidden)[0] * apart

    def rows(shift, rows_of=count):
        return place + shift + 0.3 * rng.normal(size=(num, rows_of, hidden))

    return AnchorSet(
        prompt_id_P=tuple(f"p{i:02d}" for i in range(num)),
        positive_PKH=rows(step),
        negative_PKH=rows(-step),
        query_PMH=rows(0.5 * step, 4),
    )


def test_two_clusters_are_told_apart():
    """Held-out anchors are ranked right nearly always, and the held-out loss falls well below that of no preference."""
    _, report = train_head(_anchors(2.0), SETTINGS, seed=0)
    assert report.anchor_auc > 0.95
    assert report.held_out_by_epoch[report.best_epoch] < 0.5 * math.log(2)
    assert report.best_epoch > 0


@pytest.mark.parametrize("seed", range(3))
def test_equal_distributions_are_not_told_apart(seed):
    """Where both sides are drawn alike, held-out anchors are ranked by chance."""
    _, report = train_head(_anchors(0.0, 60, seed=seed), SETTINGS, seed=seed)
    assert 0.3 < report.anchor_auc < 0.7
    assert report.held_out_by_epoch[report.best_epoch] > 0.8 * math.log(2)


def test_same_seed_same_bytes():
    """Equal anchors and seed give an equal head; another seed gives another."""
    made = _anchors(1.0)
    one, two, other = (train_head(made, SETTINGS, seed=seed)[0].to_bytes() for seed in (3, 3, 4))
    assert one == two
    assert one != other


def test_order_of_prompts_changes_nothing():
    """Prompts are split and taken by their ids, so that their order in the table decides nothing."""
    made = _anchors(1.0, 10)
    turned = made.select(list(range(len(made)))[::-1])
    assert train_head(made, SETTINGS, seed=0)[0].to_bytes() == train_head(turned, SETTINGS, seed=0)[0].to_bytes()


def test_training_stops_when_held_out_loss_stops_falling():
    """No more epochs than patience pass after the best one, and the best weights are those that are kept."""
    made = _anchors(0.0, 12)
    head, report = train_head(made, replace(SETTINGS, learning_rate=5e-2, patience=2), seed=0)
    assert len(report.held_out_by_epoch) - 1 - report.best_epoch <= 2
    assert report.held_out_by_epoch[report.best_epoch] == min(report.held_out_by_epoch)
    assert not any(item.requires_grad for item in head.parameters())


def test_training_leaves_the_global_stream_alone():
    """The head's start is drawn from the run seed, not from torch's global state."""
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    train_head(_anchors(1.0, 6), replace(SETTINGS, max_epochs=1), seed=0)
    assert torch.equal(expected, torch.rand(1))


def test_prompts_with_equal_sides_are_left_out_and_counted():
    """A prompt whose sides agree takes no part."""
    made = _anchors(2.0, 8)
    positive = made.positive_PKH.copy()
    positive[0] = made.negative_PKH[0]
    mixed = AnchorSet(
        prompt_id_P=made.prompt_id_P,
        positive_PKH=positive,
        negative_PKH=made.negative_PKH,
        query_PMH=made.query_PMH,
    )
    head, report = train_head(mixed, SETTINGS, seed=0)
    assert (1, 7) == (report.num_equal, report.num_train + report.num_held_out)
    assert head.to_bytes() == train_head(made.select(range(1, 8)), SETTINGS, seed=0)[0].to_bytes()


def test_one_prompt_is_refused():
    """With one prompt none could be held out."""
    with pytest.raises(AnchorError, match="At least 2 prompts must have anchors whose sides differ; got 1 of 1"):
        train_head(_anchors(1.0, 1), SETTINGS, seed=0)


def test_equal_anchors_everywhere_are_refused():
    """Where no prompt's sides differ there is nothing to learn."""
    made = _anchors(1.0, 4)
    same = AnchorSet(
        prompt_id_P=made.prompt_id_P,
        positive_PKH=made.positive_PKH,
        negative_PKH=made.positive_PKH[:, ::-1],
        query_PMH=made.query_PMH,
    )
    with pytest.raises(AnchorError, match="got 0 of 4"):
        train_head(same, SETTINGS, seed=0)


def test_a_loss_that_is_no_number_stops_training():
    """A learning rate that breaks the weights is told, not trained on."""
    with pytest.raises(NonFiniteError, match="The metric head's loss must be finite; got nan"):
        train_head(_anchors(1.0, 6), replace(SETTINGS, learning_rate=1e30), seed=0)


def test_anchor_ranking_of_equal_anchors_is_even():
    """Ties count half."""
    made = _anchors(1.0, 4)
    head, _ = train_head(made, replace(SETTINGS, max_epochs=1), seed=0)
    flat = np.ones((1, 2, 6), dtype=np.float32)
    same = AnchorSet(prompt_id_P=("p",), positive_PKH=flat, negative_PKH=flat, query_PMH=flat)
    assert 0.5 == anchor_auc(head, same)
