"""Bad parameters are refused before a process starts, and every deployment names a flow that can be loaded."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from prefect.client.orchestration import get_client
from prefect.exceptions import PrefectHTTPStatusError
from prefect.utilities.callables import parameter_schema
from pydantic import ValidationError

from flows.common import TrainRequest
from flows.train_policy import train

ROOT = Path(__file__).resolve().parents[2]
FLOWS = {
    "anchors",
    "audit",
    "benchmark",
    "calibrate",
    "compare",
    "evaluate",
    "nightly",
    "prepare",
    "report",
    "train",
    "warmup",
}
LOADER = """
import json, sys
from prefect.flows import load_flow_from_entrypoint
for entrypoint in sys.argv[1:]:
    flow = load_flow_from_entrypoint(entrypoint, use_placeholder_flow=False)
    print(json.dumps([entrypoint, flow.name, bool(flow.description), sorted(flow.parameters.properties)]))
"""


@pytest.fixture(scope="module")
def deployments():
    """Return the deployments of `prefect.yaml` by name."""
    listed = yaml.safe_load((ROOT / "prefect.yaml").read_text())["deployments"]
    return {item["name"]: item for item in listed}


@pytest.fixture(scope="module")
def train_deployment(prefect_server):
    """Deploy `train` on the server, with its parameters enforced; return the deployment's id."""
    schema = parameter_schema(train)
    with get_client(sync_client=True) as client:
        return client.create_deployment(
            flow_id=client.create_flow(train),
            name="train",
            entrypoint="flows/train_policy.py:train",
            parameter_openapi_schema=schema.model_dump_for_openapi(),
            enforce_parameter_schema=True,
        )


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"train": {"iterations": 0}}, "greater than or equal to 1"),
        ({"train": {"on_alarm": "ignore"}}, "Input should be 'continue', 'pause', 'recalibrate' or 'stop'"),
        ({"intervals": {"alpha": 1}}, "less than 1"),
        ({"trian": {}}, "Extra inputs are not permitted"),
    ],
)
def test_a_bad_request_is_refused_by_its_own_model(section, message):
    """A request with a value out of range, an unknown word or an unknown section cannot be made."""
    with pytest.raises(ValidationError, match=message):
        TrainRequest.model_validate(section)


@pytest.mark.parametrize(
    "request_",
    [
        {"train": {"iterations": 0}},
        {"train": {"iterations": "many"}},
        {"train": {"on_alarm": "ignore"}},
        {"objective": {"learning_rate": -1}},
        {"trian": {}},
    ],
    ids=lambda value: json.dumps(value).replace('"', ""),
)
def test_the_server_refuses_a_bad_parameter(train_deployment, request_):
    """A bad parameter of a deployed flow is answered with 409, and no flow run comes to be."""
    with get_client(sync_client=True) as client:
        before = len(client.read_flow_runs(limit=200))
        with pytest.raises(PrefectHTTPStatusError, match="409") as caught:
            client.create_flow_run_from_deployment(train_deployment, parameters={"request": request_})
        assert caught.value.response.status_code == 409
        assert before == len(client.read_flow_runs(limit=200))


def test_the_server_takes_a_good_parameter(train_deployment):
    """A good parameter of the same deployment makes a scheduled flow run."""
    with get_client(sync_client=True) as client:
        run = client.create_flow_run_from_deployment(
            train_deployment, parameters={"request": {"train": {"iterations": 2}}}
        )
        assert run.state.is_scheduled()
        client.delete_flow_run(run.id)


def test_the_form_explains_itself(train_deployment):
    """The schema that the form is made of carries bounds, choices and descriptions."""
    with get_client(sync_client=True) as client:
        definitions = client.read_deployment(train_deployment).parameter_openapi_schema["definitions"]
    settings = definitions["TrainConfig"]["properties"]
    assert (1, 100_000) == (settings["iterations"]["minimum"], settings["iterations"]["maximum"])
    assert ["continue", "pause", "recalibrate", "stop"] == settings["on_alarm"]["enum"]
    assert all(settings[name].get("description") for name in ("iterations", "on_alarm", "audit_prompts"))


def test_every_flow_is_deployed_once(deployments):
    """There is one deployment a flow, and its entrypoint is a file of this project."""
    assert set(deployments) == FLOWS
    for item in deployments.values():
        path, _, name = item["entrypoint"].rpartition(":")
        assert (ROOT / path).is_file()
        assert item["name"] == name


def test_every_entrypoint_loads_for_real(deployments):
    """The loader gives the real flow of each entrypoint, from a fresh process in the project's folder alone."""
    entrypoints = [item["entrypoint"] for item in deployments.values()]
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", LOADER, *entrypoints],
        cwd=ROOT,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    loaded = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    assert [[item["entrypoint"], item["name"], True, ["request"]] for item in deployments.values()] == loaded


def test_nightly_runs_at_a_quarter_past_three_and_never_twice(deployments):
    """The nightly deployment has one schedule in UTC, and cancels a run that would overlap another."""
    nightly = deployments["nightly"]
    assert [("15 3 * * *", "UTC")] == [(item["cron"], item["timezone"]) for item in nightly["schedules"]]
    assert nightly["concurrency_limit"] == {"limit": 1, "collision_strategy": "CANCEL_NEW"}
    assert not any(item.get("schedules") for name, item in deployments.items() if name != "nightly")
