"""The accuracy gate: open only where no fall is seen and none of that size is left possible."""

import pytest

from rangeline.errors import BadInputError
from rangeline.evaluation.comparison import paired_difference
from rangeline.evaluation.promotion import accuracy_gate


def change(values, *, before=0.5):
    """Return the paired difference of prompts that moved by these values."""
    names = [f"p{i}" for i in range(len(values))]
    after = {name: before + value for name, value in zip(names, values, strict=True)}
    return paired_difference(dict.fromkeys(names, before), after, seed=0)


@pytest.mark.parametrize(
    ("values", "expected", "words"),
    [
        ([0.0] * 200, True, "did not fall"),
        ([0.2] * 20 + [0.1] * 20, True, "did not fall"),
        ([-0.01] * 200, False, "accuracy fell"),
        ([0.5, -0.5] * 3, False, "not ruled out"),
        ([0.0] * 40, False, "not ruled out"),
        ([0.5, -0.5] * 400 + [0.1], True, "did not fall"),
    ],
    ids=["same", "better", "a little worse", "too few to tell", "too few, all the same", "enough to tell"],
)
def test_gate(values, expected, words):
    """Equal and better policies pass, a fall does not, and few prompts that scatter rule nothing out."""
    is_open, reason = accuracy_gate(change(values), max_fall=0.05)
    assert (expected, True) == (is_open, words in reason)


def test_without_shared_prompts_the_gate_is_undefined():
    """Nothing to compare is no permission."""
    assert accuracy_gate(None, max_fall=0.05)[0] is None


def test_margin_must_be_a_share():
    """A margin outside (0, 1) is refused."""
    with pytest.raises(BadInputError, match=r"'max_fall' must be in \(0, 1\); got 1.5"):
        accuracy_gate(None, max_fall=1.5)
