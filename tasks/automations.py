"""Automations of the Prefect server: crashed flow runs are marked, and people are told of failures and alarms.

A self-hosted server marks no flow run as crashed whose process was killed: its heartbeats just end. The zombie
automation does. With RANGELINE_NOTIFY_URL set, the others post to that address as JSON with `subject` and `body`;
without it they act on nothing, and show in the server's event feed when they would have told somebody.
"""

import os
import sys
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

from prefect.blocks.notifications import CustomWebhookNotificationBlock
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import DeploymentUpdate
from prefect.client.schemas.objects import StateType
from prefect.events import emit_event
from prefect.events.actions import ActionTypes, ChangeFlowRunState, DoNothing, SendNotification
from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture
from prefect.runtime import flow_run
from prefect.types import SecretDict

from rangeline.config import TRAINING_SECTIONS, build_config, read_settings
from rangeline.errors import ToolError
from tasks.processes import require_success

NOTIFY_VARIABLE = "RANGELINE_NOTIFY_URL"
BLOCK = "rangeline-notify"
ALARM_EVENT = "rangeline.coverage.alarm"
SILENT_AFTER = timedelta(seconds=540)
"""Three heartbeats: a flow run sends one every 180 s."""
_ENDS = ("Completed", "Failed", "Cancelled", "Crashed")
_RUNS = {"prefect.resource.id": "prefect.flow-run.*"}
_RUN_BODY = (
    "Flow {{ flow.name }}, run {{ flow_run.name }}: {{ flow_run.state.name }}. {{ flow_run.state.message }} "
    "Yesterday's champion goes on serving: only a promotion changes it."
)
_ALARM_BODY = "Run {{ event.resource.name }}: {{ event.payload.reasons }} See {{ event.payload.page }}"


def wanted_automations(told: ActionTypes | None, *, silent_after: timedelta = SILENT_AFTER) -> list[AutomationCore]:
    """Return the automations that a server should have.

    Parameters
    ----------
    told
        A notification whose block is used, None where nobody is to be told.
    silent_after
        Time without a heartbeat after which a flow run counts as crashed, at least 10 s.
    """
    crash = ChangeFlowRunState(
        state=StateType.CRASHED,
        name="Crashed",
        message=f"No heartbeat for {silent_after.total_seconds():.0f} s: its process is gone.",
    )
    zombie = EventTrigger(
        posture=Posture.Proactive,
        match=_RUNS,
        after={"prefect.flow-run.heartbeat"},
        expect={"prefect.flow-run.heartbeat", *(f"prefect.flow-run.{end}" for end in _ENDS)},
        for_each={"prefect.resource.id"},
        threshold=1,
        within=silent_after,
    )
    found = [
        AutomationCore(
            name="rangeline: zombie flow runs",
            description="A flow run whose heartbeats end without an end of the run is marked Crashed",
            trigger=zombie,
            actions=[crash],
        )
    ]
    for end in ("Failed", "Crashed"):
        trigger = _reactive(f"prefect.flow-run.{end}", _RUNS)
        found.append(_telling(f"rangeline: flow run {end.lower()}", trigger, told, f"{end}: rangeline", _RUN_BODY))
    alarm = _reactive(ALARM_EVENT, {"prefect.resource.id": "rangeline.run.*"})
    found.append(_telling("rangeline: coverage alarm", alarm, told, "Coverage alarm: rangeline", _ALARM_BODY))
    return found


def _reactive(event: str, match: Mapping[str, str]) -> EventTrigger:
    return EventTrigger(
        posture=Posture.Reactive,
        match=dict(match),
        expect={event},
        for_each={"prefect.resource.id"},
        threshold=1,
        within=timedelta(0),
    )


def _telling(name: str, trigger: EventTrigger, told: ActionTypes | None, subject: str, body: str) -> AutomationCore:
    action: ActionTypes = DoNothing()
    if isinstance(told, SendNotification):
        action = SendNotification(block_document_id=told.block_document_id, subject=subject, body=body)
    return AutomationCore(name=name, description=f"Tells people: {subject}", trigger=trigger, actions=[action])


def ensure_automations(*, notify_url: str | None = None, silent_after: timedelta = SILENT_AFTER) -> list[str]:
    """Make the automations on the configured server, or bring them up to date; return their names.

    Parameters
    ----------
    notify_url
        Address to post to; None takes RANGELINE_NOTIFY_URL, and without that nobody is told. It is stored on the
        server as a secret block, and in no automation.
    silent_after
        As of `wanted_automations`.
    """
    address = notify_url or os.environ.get(NOTIFY_VARIABLE)
    wanted = wanted_automations(_notification(address) if address else None, silent_after=silent_after)
    with get_client(sync_client=True) as client:
        for automation in wanted:
            known = client.read_automations_by_name(automation.name)
            if known:
                # Whether it is switched on is for the person who switched it off.
                kept = automation.model_copy(update={"enabled": known[0].enabled})
                client.update_automation(known[0].id, kept)
            else:
                client.create_automation(automation)
    return [automation.name for automation in wanted]


def _notification(address: str) -> SendNotification:
    block = CustomWebhookNotificationBlock(
        name=BLOCK,
        url="{{address}}",
        method="POST",
        json_data={"subject": "{{subject}}", "body": "{{body}}"},
        secrets=SecretDict({"address": address}),
    )
    document = block.save(BLOCK, overwrite=True)
    return SendNotification(block_document_id=document, subject="rangeline", body="rangeline")


def tell_alarm(run: str, iteration: int, reasons: tuple[str, ...], page: str) -> None:
    """Send the event of a coverage alarm, which the automation of that name waits for; outside a flow, nothing."""
    if flow_run.id is None:
        return
    emit_event(
        event=ALARM_EVENT,
        resource={"prefect.resource.id": f"rangeline.run.{run}", "prefect.resource.name": run},
        related=[{"prefect.resource.id": f"prefect.flow-run.{flow_run.id}", "prefect.resource.role": "flow-run"}],
        payload={"iteration": iteration, "reasons": " ".join(reasons), "page": page},
    )


def offer_settings(home: Path) -> None:
    """Fill the training form with the settings of the project's params.yaml as they are now.

    A form sends every field that it shows, so it would else send the classes' defaults in place of the file's values.
    """
    path = home / "params.yaml"
    config = build_config(read_settings(path), source=str(path))
    sections = {name: getattr(config, name).model_dump(mode="json") for name in TRAINING_SECTIONS}
    with get_client(sync_client=True) as client:
        deployment = client.read_deployment_by_name("train/train")
        offered = DeploymentUpdate(parameters={"request": {"workspace": ".", **sections}})
        client.update_deployment(deployment.id, offered)


def deploy_all(home: Path) -> list[str]:
    """Put work pool, deployments and automations on the server that PREFECT_API_URL names; return what was made.

    Raises
    ------
    ToolError
        When no server is named, or Prefect fails.
    """
    if not os.environ.get("PREFECT_API_URL"):
        msg = "'PREFECT_API_URL' must name a Prefect server; got nothing. Start one with 'rangeline serve prefect'."
        raise ToolError(msg)
    prefect = [sys.executable, "-m", "prefect", "--no-prompt"]
    environ = {"RANGELINE_HOME": str(home)}
    pool = [*prefect, "work-pool", "create", "--type", "process", "rangeline", "--overwrite"]
    require_success(pool, cwd=home, env=environ)
    require_success([*prefect, "deploy", "--all"], cwd=home, env=environ)
    offer_settings(home)
    return ["work pool rangeline", "deployments of prefect.yaml", *(f"automation {n}" for n in ensure_automations())]


if __name__ == "__main__":
    # With the project's folder, its deployments too.
    deploy_all(Path(sys.argv[1])) if sys.argv[1:] else ensure_automations()
