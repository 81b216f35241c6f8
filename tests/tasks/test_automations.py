"""Automations on a real server: made once, told to a real address, and a flow run without heartbeats is crashed."""

import json
import threading
import time
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.events import emit_event
from prefect.states import Running

from rangeline.errors import ToolError
from tasks.automations import deploy_all, ensure_automations, tell_alarm, wanted_automations

pytestmark = [pytest.mark.usefixtures("prefect_server"), pytest.mark.ops, pytest.mark.slow]

NAMES = [
    "rangeline: zombie flow runs",
    "rangeline: flow run failed",
    "rangeline: flow run crashed",
    "rangeline: coverage alarm",
]
WAIT_S = 60


class Inbox(BaseHTTPRequestHandler):
    """Takes notifications and keeps them."""

    taken: ClassVar = []

    def do_POST(self):
        """Keep one notification."""
        Inbox.taken.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        """Say nothing."""


def wait_for(look):
    """Return what a look gives once it gives something; None after a minute."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        if found := look():
            return found
        time.sleep(0.5)
    return None


@pytest.fixture(scope="module")
def address():
    """Give the address of a server that takes notifications."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Inbox) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/hook?token=canary-3141"
        server.shutdown()


@pytest.fixture(scope="module")
def made(address):
    """Make the automations, twice."""
    ensure_automations(notify_url=address, silent_after=timedelta(seconds=10))
    return ensure_automations(notify_url=address, silent_after=timedelta(seconds=10))


def test_automations_are_made_once(made):
    """Making them again makes none twice."""
    assert NAMES == made
    with get_client(sync_client=True) as client:
        found = [item for item in client.read_automations() if item.name.startswith("rangeline: ")]
        assert sorted(NAMES) == sorted(item.name for item in found)


def test_the_address_is_a_secret(made):
    """The address, which may hold a token, stands in no automation, and the server masks it unless asked."""
    with get_client(sync_client=True) as client:
        blocks = client.read_block_documents(include_secrets=False)
        text = json.dumps([item.model_dump(mode="json") for item in (*client.read_automations(), *blocks)])
    assert "canary-3141" not in text


def test_without_an_address_nobody_is_told():
    """Without an address the automations act on nothing, but the zombie automation still does."""
    kinds = [automation.actions[0].type for automation in wanted_automations(None)]
    assert ["change-flow-run-state", "do-nothing", "do-nothing", "do-nothing"] == kinds


def test_a_failed_flow_run_is_told(made):
    """A flow run that fails is told at the address, by its flow's name and with the reason."""

    @flow(name="fails-tonight")
    def fails():
        msg = "the judge is away"
        raise RuntimeError(msg)

    fails(return_state=True)
    told = wait_for(lambda: next((item for item in Inbox.taken if "fails-tonight" in item["body"]), None))
    assert told["subject"].startswith("Failed: rangeline")
    assert "the judge is away" in told["body"]


def test_a_coverage_alarm_is_told(made):
    """A coverage alarm is told with run and reasons."""

    @flow(name="alarms-tonight")
    def alarms():
        tell_alarm("nightly-x", 2, ("coverage must lie in [0.8, 1]; got 0.5.",), "page.html")

    alarms()
    told = wait_for(lambda: next((item for item in Inbox.taken if "nightly-x" in item["body"]), None))
    assert told["subject"] == "Coverage alarm: rangeline"
    assert "got 0.5" in told["body"]


def test_a_flow_run_without_heartbeats_is_crashed(made):
    """A flow run whose heartbeats end without an end of the run is marked Crashed by the server."""

    @flow(name="killed-tonight")
    def killed():
        """Is never run here: only its record is."""

    with get_client(sync_client=True) as client:
        run = client.create_flow_run(killed, state=Running())
        emit_event(
            event="prefect.flow-run.heartbeat",
            resource={"prefect.resource.id": f"prefect.flow-run.{run.id}", "prefect.resource.name": run.name},
        )
        state = wait_for(lambda: (s := client.read_flow_run(run.id).state) and s.is_crashed() and s)
    assert "No heartbeat for 10 s" in state.message


def test_no_alarm_is_sent_outside_a_flow():
    """A library user without a flow sends no event."""
    tell_alarm("r", 1, (), "")


def test_deploying_without_a_server_is_refused(monkeypatch, tmp_path):
    """Deploying needs a named server, and says how to start one."""
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    with pytest.raises(ToolError, match=r"'PREFECT_API_URL' must name a Prefect server.*rangeline serve prefect"):
        deploy_all(tmp_path)
