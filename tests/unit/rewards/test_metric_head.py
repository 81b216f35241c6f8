"""The metric head and its equations, worked by hand."""

import math

import numpy as np
import pytest
import torch

from rangeline.errors import AnchorError
from rangeline.rewards.metric_head import (
    HeadShape,
    MetricHead,
    alignment,
    contrast,
    set_contrastive_loss,
    shape_from,
)

X, Y = [1.0, 0.0], [0.0, 1.0]
SHAPE = HeadShape(hidden_size=3, width=4, dimension=2, temperature=0.1)


def _t(values):
    return torch.tensor(values, dtype=torch.float64)


def test_alignment_is_the_log_of_the_summed_exponentials():
    """Anchors at cosines 1 and 0 with tau 1/2: log(e^2 + e^0), a sum and no mean (equation 5)."""
    assert math.log(math.e**2 + 1) == pytest.approx(float(alignment(_t([X]), _t([X, Y]), 0.5)))


def test_contrast_of_a_query_on_one_side():
    """Query x, positives (x, x), negatives (y, y), tau .1: R = (log 2 + 10) - log 2 = 10."""
    assert 10.0 == pytest.approx(float(contrast(_t([X]), _t([X, X]), _t([Y, Y]), 0.1)))


def test_loss_of_no_preference_is_log_two():
    """At R = 0 the loss is -log sigma(0) = log 2 (equation 6)."""
    assert math.log(2) == pytest.approx(float(set_contrastive_loss(_t([[0.0]]))))


def test_loss_sums_queries_and_averages_prompts():
    """Scores ((0, log 3), (0, 0)): (log 2 + log(4/3) + 2 log 2) / 2 (equation 7)."""
    expected = (3 * math.log(2) + math.log(4 / 3)) / 2
    assert expected == pytest.approx(float(set_contrastive_loss(_t([[0.0, math.log(3)], [0.0, 0.0]]))))


def test_loss_stays_finite_at_the_ends():
    """R = -20, the worst at tau .1, loses 20; R = +20 loses next to nothing."""
    assert 20.0 == pytest.approx(float(set_contrastive_loss(_t([[-20.0]]))))
    assert 0 < float(set_contrastive_loss(_t([[20.0]]))) < 1e-8


def test_projections_have_length_one():
    """Whatever comes in, what comes out has length one."""
    projected = MetricHead(SHAPE).project(np.array([[1, 2, 3], [-1e4, 0, 1e4]], dtype=np.float32))
    torch.testing.assert_close(torch.ones(2), projected.norm(dim=-1))


def test_a_scaled_last_layer_changes_nothing():
    """Projections are normalised: a last layer times c gives the same."""
    head, hidden = MetricHead(SHAPE), np.array([[1, 2, 3]], dtype=np.float32)
    before = head.project(hidden)
    with torch.no_grad():
        head.second.weight.mul_(7)
        head.second.bias.mul_(7)
    torch.testing.assert_close(before, head.project(hidden))


def test_head_is_two_layers_with_a_gelu():
    """It computes f = normalise(W2 gelu(W1 h + b1) + b2)."""
    head, hidden = MetricHead(SHAPE), torch.tensor([[0.5, -1.0, 2.0]])
    inner = hidden @ head.first.weight.T + head.first.bias
    gelu = inner * 0.5 * (1 + torch.erf(inner / math.sqrt(2)))
    outer = gelu @ head.second.weight.T + head.second.bias
    torch.testing.assert_close(outer / outer.norm(), head(hidden))


def test_inputs_are_standardised_by_the_training_rows():
    """Mean and population scale come from the rows; a dimension that never varies is not divided."""
    head = MetricHead(SHAPE)
    head.standardise_by(torch.tensor([[0.0, 5.0, 1.0], [2.0, 5.0, 3.0]]))
    assert ([1, 5, 2], [1, 1, 1]) == (head.mean_H.tolist(), head.scale_H.tolist())


def test_bytes_give_the_head_back_frozen():
    """A stored head projects to the same bits, takes no gradient, and is stored in the same bytes."""
    head, hidden = MetricHead(SHAPE), np.array([[1, 2, 3]], dtype=np.float32)
    again = MetricHead.from_bytes(head.to_bytes(), SHAPE)
    assert torch.equal(head.project(hidden), again.project(hidden))
    assert not any(item.requires_grad for item in again.parameters())
    assert head.to_bytes() == again.to_bytes()


@pytest.mark.parametrize("content", [b"", b"\x80\x04pickle", b"\xff" * 64])
def test_foreign_bytes_are_refused(content):
    """What is no safetensors file is not a head."""
    with pytest.raises(AnchorError, match="Metric head must be safetensors of"):
        MetricHead.from_bytes(content, SHAPE)


def test_another_shape_is_refused():
    """Weights of other sizes are not a head of this shape."""
    with pytest.raises(AnchorError, match="Metric head must be safetensors of"):
        MetricHead.from_bytes(MetricHead(SHAPE).to_bytes(), HeadShape(hidden_size=4, width=4, dimension=2))


@pytest.mark.parametrize("field", ["hidden_size", "width", "dimension", "temperature"])
def test_sizes_must_be_positive(field):
    """Zero is no size and no temperature."""
    with pytest.raises(AnchorError, match=f"'{field}' must be positive; got 0"):
        MetricHead(HeadShape(**{"hidden_size": 3, field: 0}))


def test_unknown_shape_fields_are_refused():
    """A stored shape with other fields is refused."""
    with pytest.raises(AnchorError, match="Metric head must say its shape"):
        shape_from({"hidden_size": 3, "depth": 2})
