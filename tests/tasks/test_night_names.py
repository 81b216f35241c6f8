"""Which run a night works at, and where its record goes: no date decides, and nothing is begun anew or written over."""

import shutil
from datetime import UTC, datetime

import pytest
from tiny import train_toy

from rangeline.lineage import write_json
from rangeline.provenance.ledger import Note, append_note
from rangeline.stages.workspace import Workspace
from tasks.champions import POLICY_MODEL
from tasks.nights import free_record, name_of_night
from tasks.tracking import Tracker

TONIGHT = "nightly-2026-03-02"
BEFORE = "nightly-2026-03-01"
AFTER = "nightly-2026-03-09"


@pytest.fixture
def night(toy, tmp_path, tracking_store):
    """Give a copy of a calibrated workspace, and what tells the run of a night there."""
    root = shutil.copytree(toy[0].root, tmp_path / "w", ignore=shutil.ignore_patterns("runs"))
    (root / "mlruns").mkdir(exist_ok=True)
    shutil.copy(tracking_store, root / "mlruns" / "mlflow.db")

    def train(name, until=None):
        train_toy(Workspace(root), toy[1], name, until=until)

    return root, train, lambda base=TONIGHT: name_of_night(str(root), toy[1], base)


def promoted(root, run):
    """Register a run's last checkpoint, and note that a promotion was decided."""
    tracker = Tracker.open(root)
    tracked = tracker.start_run(run, kind="train")
    reference = {"checkpoint": {"path": f"runs/{run}/checkpoints/000004", "sha256": "0" * 64}}
    version = tracker.register(POLICY_MODEL, run_id=tracked, reference=reference)
    append_note(root, Note(kind="promotion", ended="x", facts={"version": version}))


def test_a_first_night_has_the_name_of_its_date(night):
    """Where no night was, the run is named by the date."""
    assert (TONIGHT, None) == night[2]()


@pytest.mark.parametrize("earlier", [BEFORE, AFTER])
@pytest.mark.parametrize("until", [1, None])
def test_a_night_without_its_promotion_is_gone_on_with(earlier, until, night):
    """A run that was killed, or whose promotion was, keeps its name after midnight and after the clock was set."""
    _, train, name = night
    train(earlier, until)
    assert (earlier, None) == name()


def test_of_two_that_were_left_the_one_that_came_further_is_gone_on_with(night):
    """The fewest iterations are made again."""
    _, train, name = night
    for run, until in ((BEFORE, 1), (AFTER, 2)):
        train(run, until)
    assert (AFTER, None) == name()


@pytest.mark.parametrize("left", [BEFORE, AFTER])
def test_a_night_with_its_promotion_has_answered(left, night):
    """A run of the same question whose promotion was decided answers, whatever else lies there unfinished."""
    root, train, name = night
    answered = "nightly-2026-03-05"
    train(answered)
    train(left, 1)
    promoted(root, answered)
    assert (answered, answered) == name()


def test_no_record_of_a_night_is_written_over(tmp_path):
    """Two nights of one second and one process number, as after a clock was set back, leave two records."""
    moment = datetime(2026, 3, 2, 3, 15, tzinfo=UTC)
    names = []
    for number in range(3):
        path = free_record(tmp_path, moment, 7)
        write_json(path, {"night": number})
        names.append(path.name)
    assert ["20260302T031500-7.json", "20260302T031500-7-2.json", "20260302T031500-7-3.json"] == names
