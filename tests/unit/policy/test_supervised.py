"""Laws of the supervised step."""

import math

import pytest
import torch

from rangeline.errors import BadInputError, NonFiniteError
from rangeline.policy.supervised import ChoiceRow, SupervisedRow, choice_update, supervised_update
from rangeline.policy.trainer import PolicyTrainer, UpdateSettings

ROWS = [
    SupervisedRow(prompt_ids=(3, 4), target_ids=(7, 8, 2)),
    SupervisedRow(prompt_ids=(5,), target_ids=(9, 2)),
]


def trainer_of(model):
    """Make a trainer that moves visibly in one step."""
    return PolicyTrainer(model, UpdateSettings(learning_rate=1e-2), cpu=True)


def test_targets_become_likelier(tiny_model):
    """The loss falls from step to step on the same rows."""
    trainer = trainer_of(tiny_model())
    losses = [supervised_update(trainer, ROWS, pad_id=0).loss for _ in range(4)]
    assert sorted(losses, reverse=True) == losses


def test_report_counts_targets_alone(tiny_model):
    """Prompt tokens are neither counted nor taught."""
    report = supervised_update(trainer_of(tiny_model()), ROWS, pad_id=0)
    assert (report.num_tokens, report.num_rows) == (5, 2)


def test_row_order_changes_no_bit(tiny_model):
    """Rows in another order give the same weights."""
    one, other = trainer_of(tiny_model()), trainer_of(tiny_model())
    supervised_update(one, ROWS, pad_id=0)
    supervised_update(other, ROWS[::-1], pad_id=0)
    assert all(torch.equal(a, b) for a, b in zip(one.model.parameters(), other.model.parameters(), strict=True))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "'rows' must hold at least one row; got 0"),
        ([SupervisedRow(prompt_ids=(), target_ids=(2,))], r"'prompt_ids' must hold at least one token; got 0 \(row 0"),
        ([ROWS[0], SupervisedRow(prompt_ids=(3,), target_ids=())], r"'target_ids' must .*; got 0 \(row 1"),
    ],
)
def test_nothing_to_teach_is_refused(tiny_model, rows, message):
    """No row, an empty prompt or an empty target is an error that names the row."""
    with pytest.raises(BadInputError, match=message):
        supervised_update(trainer_of(tiny_model()), rows, pad_id=0)


def test_broken_weights_stop_the_step(tiny_model):
    """A loss that is not finite takes no step."""
    model = tiny_model()
    with torch.no_grad():
        model.lm_head.weight[7] = float("nan")
    with pytest.raises(NonFiniteError, match=r"'loss' must be finite; got nan \(supervised step\)"):
        supervised_update(trainer_of(model), ROWS, pad_id=0)


CHOICES = [ChoiceRow(prompt_ids=(3, 4), choice_ids=(7, 8)), ChoiceRow(prompt_ids=(5,), choice_ids=(9, 7))]


def test_choices_become_alike_and_all_there_is(tiny_model):
    """Steps on choices take the loss down to log n: each of n choices has probability 1 / n, and nothing else any."""
    trainer = trainer_of(tiny_model())
    losses = [choice_update(trainer, CHOICES, pad_id=0).loss for _ in range(60)]
    assert losses[-1] == pytest.approx(math.log(2), abs=0.02)
    with torch.no_grad():
        prob = trainer.model(torch.tensor([[3, 4]])).logits[0, -1].softmax(-1)
    assert [0.5, 0.5] == pytest.approx(prob[[7, 8]].tolist(), abs=0.05)


def test_order_of_choice_rows_changes_no_bit(tiny_model):
    """Rows in another order, of unlike lengths, give the same weights; padding is never read."""
    models = [trainer_of(tiny_model()) for _ in range(3)]
    for trainer, rows, pad_id in zip(models, (CHOICES, CHOICES[::-1], CHOICES), (0, 0, 6), strict=True):
        choice_update(trainer, rows, pad_id=pad_id)
    first, *others = ([*trainer.model.parameters()] for trainer in models)
    assert all(torch.equal(a, b) for other in others for a, b in zip(first, other, strict=True))


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [ChoiceRow(prompt_ids=(), choice_ids=(2,))],
        [ChoiceRow(prompt_ids=(3,), choice_ids=())],
        [CHOICES[0], ChoiceRow(prompt_ids=(3,), choice_ids=(7,))],
    ],
)
def test_choices_of_unlike_number_are_refused(tiny_model, rows):
    """No row, an empty prompt, no choice, or another number of choices is refused."""
    with pytest.raises(BadInputError, match="'rows' must be one or more prompts of a token and more, with one number"):
        choice_update(trainer_of(tiny_model()), rows, pad_id=0)
