"""Laws of retention: the newest and the best stay, and what is given up is named once."""

import json

import pytest

from rangeline.errors import CheckpointError
from rangeline.policy.retention import Retention, plan_retention


def walk(values, *, keep_last=2, metric="train/accuracy"):
    """Return the note after each saved iteration, numbered from 1."""
    notes = [Retention()]
    for number, value in enumerate(values, start=1):
        notes.append(plan_retention(notes[-1], number, keep_last=keep_last, metric=metric, value=value))
    return notes[1:]


def test_newest_and_best_are_kept():
    """Of values 1 9 2 3 4 the last two stay, and iteration 2, which did best."""
    note = walk([0.1, 0.9, 0.2, 0.3, 0.4])[-1]
    assert ((2, 4, 5), 2, 0.9, (3,)) == (note.kept, note.best, note.value, note.retired)


def test_each_checkpoint_is_kept_or_retired_once():
    """What is not kept at the end was retired exactly once on the way."""
    notes = walk([0.3, 0.1, 0.5, 0.2, 0.2, 0.6, 0.1])
    retired = [number for note in notes for number in note.retired]
    assert list(range(1, 8)) == sorted([*retired, *notes[-1].kept])


def test_equal_values_keep_the_earlier_best():
    """A plateau retires nothing but what grows old."""
    assert 1 == walk([0.5, 0.5, 0.5, 0.5])[-1].best


@pytest.mark.parametrize(("metric", "values"), [(None, [0.1, 0.2, 0.3]), ("evaluation/accuracy", [None] * 3)])
def test_without_a_value_only_the_newest_are_kept(metric, values):
    """No metric, or one that was never measured, makes no best."""
    note = walk(values, metric=metric)[-1]
    assert ((2, 3), None) == (note.kept, note.best)


def test_another_metric_starts_the_choice_anew():
    """Values of two metrics are not compared: the best by the old one is given up when it is old."""
    before = walk([0.9, 0.1, 0.1])[-1]
    note = plan_retention(before, 4, keep_last=2, metric="evaluation/accuracy", value=0.2)
    assert ((3, 4), 4, (1, 2)) == (note.kept, note.best, note.retired)


def test_saved_again_an_iteration_is_not_its_own_past():
    """An iteration that is made anew gives the note that it gave the first time."""
    notes = walk([0.1, 0.2, 0.3])
    again = plan_retention(notes[1], 3, keep_last=2, metric="train/accuracy", value=0.3)
    assert notes[2].to_json() == again.to_json()


def test_note_outlasts_json():
    """A note read back gives the same note."""
    note = walk([0.2, 0.1, 0.4])[-1]
    assert note == Retention.from_json(json.loads(json.dumps(note.to_json())))


def test_keeping_none_is_refused():
    """The newest checkpoint is always kept."""
    with pytest.raises(CheckpointError, match=r"'keep_last' must be at least 1; got 0 \(iteration 1\)"):
        walk([0.1], keep_last=0)
