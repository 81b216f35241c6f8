"""What people decided holds against a night that is at work: a rollback is not undone, nor a promotion passed over."""

import shutil

import pytest

from rangeline.errors import BusyError
from tasks.champions import POLICY_MODEL, give_back, was_rolled_back
from tasks.nights import standing_gates
from tasks.tracking import CHAMPION, Tracker

OPEN = {"coverage stood": True}


@pytest.fixture
def registry(tmp_path, tracking_store):
    """Give a workspace with three registered versions, the second champion after the first."""
    (tmp_path / "mlruns").mkdir()
    shutil.copy(tracking_store, tmp_path / "mlruns" / "mlflow.db")
    tracker = Tracker.open(tmp_path)
    run_id = tracker.start_run("r", kind="train")
    for number in (1, 2, 3):
        reference = {"checkpoint": {"path": f"runs/r/checkpoints/{number:06d}", "sha256": str(number) * 64}}
        assert number == tracker.register(POLICY_MODEL, run_id=run_id, reference=reference)
    for number in (1, 2):
        assert CHAMPION == tracker.promote(POLICY_MODEL, number, OPEN)
    return tmp_path, tracker


def test_every_standing_gate_is_open_while_nobody_did_anything(registry):
    """A new version that was compared with the champion meets no closed gate."""
    root, _ = registry
    assert {True} == set(standing_gates(str(root), 3, 2).values())


def test_a_champion_that_changed_meanwhile_closes_the_gate(registry):
    """After a rollback amid the night the new version is not promoted on a comparison with the old champion."""
    root, tracker = registry
    give_back(tracker, POLICY_MODEL, 2, 1, "worse in use")
    gates = standing_gates(str(root), 3, 2)
    assert {"champion is the one compared with": False, "nobody rolled it back": True} == gates
    assert "challenger" == tracker.promote(POLICY_MODEL, 3, {**OPEN, **gates})
    assert 1 == tracker.alias_version(POLICY_MODEL, CHAMPION)


def test_what_a_person_rolled_back_is_not_promoted_again(registry):
    """The version that lost the alias stays challenger, however well it compares with the champion that is back."""
    root, tracker = registry
    give_back(tracker, POLICY_MODEL, 2, 1, "worse in use")
    assert (True, False) == tuple(was_rolled_back(tracker, POLICY_MODEL, number) for number in (2, 1))
    gates = standing_gates(str(root), 2, 1)
    assert {"champion is the one compared with": True, "nobody rolled it back": False} == gates


def test_a_rollback_does_not_undo_a_promotion_that_came_meanwhile(registry):
    """Another version that was promoted while the former champion was verified stays champion; the person is told."""
    _, tracker = registry
    tracker.promote(POLICY_MODEL, 3, OPEN)
    with pytest.raises(BusyError, match=r"Version 2 must still be champion.*got 3.*Nothing was changed"):
        give_back(tracker, POLICY_MODEL, 2, 1, "worse in use")
    assert 3 == tracker.alias_version(POLICY_MODEL, CHAMPION)
    assert not any(was_rolled_back(tracker, POLICY_MODEL, number) for number in (2, 3))
