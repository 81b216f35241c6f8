"""The nightly flow: its lateness guard, and a whole night."""

from datetime import UTC, datetime, timedelta

import pytest
from prefect.client.orchestration import get_client
from prefect.flow_engine import run_flow
from prefect.states import Scheduled

from flows.run_nightly import NightlyRequest, is_late, nightly
from tasks.tracking import Tracker

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("minutes", "expected"), [(-5, False), (0, False), (179, False), (180, False), (181, True), (6000, True)]
)
def test_a_run_is_late_after_the_allowed_delay(minutes, expected):
    """A run is late when it starts more than the allowed hours after its schedule, and not at the very hour."""
    assert expected is is_late(NOON, NOON + timedelta(minutes=minutes), 3.0)


def test_a_run_without_schedule_is_never_late():
    """A run that a person started was not scheduled and is not skipped."""
    assert is_late(None, NOON, 3.0) is False


@pytest.mark.usefixtures("prefect_server")
def test_a_late_run_is_skipped_before_anything_is_made(tmp_path):
    """A run that was scheduled long ago ends as `skipped` and leaves its workspace untouched."""
    request = NightlyRequest(workspace=str(tmp_path / "absent"))
    with get_client(sync_client=True) as client:
        state = Scheduled(scheduled_time=datetime.now(UTC) - timedelta(hours=9))
        created = client.create_flow_run(nightly, parameters={"request": request.model_dump()}, state=state)
    assert run_flow(nightly, flow_run=created, parameters={"request": request}) == "skipped"
    with get_client(sync_client=True) as client:
        assert client.read_flow_run(created.id).state.is_completed()
    assert [] == list(tmp_path.iterdir())


@pytest.mark.usefixtures("prefect_server")
def test_a_night_ends_with_a_policy_and_its_alias(copied_workspace, tmp_path):
    """A night trains under its own name, evaluates, reports, and promotes only what passes every gate."""
    root = copied_workspace(tmp_path / "work")
    alias = nightly(NightlyRequest(workspace=str(root)))
    run = next((root / "runs").glob("nightly-*"))
    assert (run / "report.html").is_file()
    found = Tracker.open(root).find_version("rangeline-policy", alias)
    assert found["reference"]["checkpoint"]["path"].startswith(f"runs/{run.name}/checkpoints/")
    assert ("none" == found["tags"]["rangeline.failed_gates"]) is (alias == "champion")
