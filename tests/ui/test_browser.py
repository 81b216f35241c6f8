"""In a real browser: a deployment's form, its run to the end, the coverage artifact, and MLflow's page of the run."""

import json
import os
import shutil
import signal
import time
from pathlib import Path

import pytest
from local_servers import ask_patiently, free_ports, read_until
from tiny import ROOT, cli, make_toy

from tasks.tracking import Tracker

playwright = pytest.importorskip(
    "playwright.sync_api", reason="needs Playwright: pip install -r tests/requirements-ops.txt"
)
CHROMIUM = next(
    (name for name in (os.environ.get("CHROMIUM"), "/usr/bin/chromium") if name and Path(name).exists()), None
)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.ops,
    pytest.mark.timeout(2400),
    pytest.mark.skipif(
        CHROMIUM is None, reason="needs Debian's Chromium at /usr/bin/chromium, or CHROMIUM to name one"
    ),
]
SHOTS = ROOT / "dist" / "screenshots"
WAIT_MS = 120_000
ENDED = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")


@pytest.fixture(scope="module")
def served(tmp_path_factory, tracking_store):
    """Serve a word world's workspace; give its folder and both ports."""
    place, _ = make_toy(tmp_path_factory.mktemp("browser") / "w")
    (place.root / "mlruns").mkdir()
    shutil.copy(tracking_store, place.root / "mlruns" / "mlflow.db")
    prefect, mlflow = free_ports(2)
    environ = {"PREFECT_HOME": str(place.root / ".prefect"), "PREFECT_API_URL": ""}
    process = cli("serve", "-w", place.root, "--port", prefect, "--mlflow-port", mlflow, environ=environ)
    read_until(process, "Ctrl-C ends")
    yield place.root, prefect, mlflow
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=180)


@pytest.fixture(scope="module")
def browser():
    """Run Chromium without a window."""
    with playwright.sync_playwright() as started:
        shown = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield shown
        shown.close()


@pytest.fixture
def page(browser):
    """Give a fresh page that waits patiently."""
    shown = browser.new_page(viewport={"width": 1180, "height": 860})
    shown.set_default_timeout(WAIT_MS)
    yield shown
    shown.close()


def shot(page, name):
    """Keep what the page shows."""
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SHOTS / f"{name}.png")


def field(page, title):
    """Return the part of a form that a title heads."""
    label = f"{title} (Optional)"
    return page.locator(
        f'.schema-form-property:has(> .p-label__header .schema-form-property__label:text-is("{label}"))'
    ).first


def open_form(page, prefect, name):
    """Open the page of the deployments, choose one, and ask for a run of one's own."""
    page.goto(f"http://127.0.0.1:{prefect}/deployments")
    page.get_by_role("link", name=name, exact=True).first.click()
    page.get_by_role("button", name="Run", exact=True).click()
    page.get_by_text("Custom run").click()
    field(page, "Workspace").wait_for()


def fill(page, root, iterations):
    """Fill in workspace, number of iterations, and what to do on an alarm."""
    field(page, "Workspace").locator("input, textarea").first.fill(str(root))
    field(page, "Iterations").locator("input").fill(str(iterations))
    # As by keyboard: the list that a click opens closes at once where there is no mouse.
    field(page, "On Alarm").locator(".p-select-button__control").focus()
    page.keyboard.press("Space")
    page.locator(".p-select-option", has_text="continue").click()


def flow_runs(prefect):
    """Return the ids of the flow runs of the deployment."""
    body = {"deployments": {"name": {"any_": ["train"]}}}
    return [run["id"] for run in ask_patiently(f"http://127.0.0.1:{prefect}/api/flow_runs/filter", body=body)]


def test_a_bad_value_is_refused_in_the_form(served, page):
    """With no iterations the form says what is wrong, and no flow run comes to be."""
    root, prefect, _ = served
    open_form(page, prefect, "train")
    shot(page, "form")
    before = flow_runs(prefect)
    fill(page, root, 0)
    page.get_by_role("button", name="Submit").click()
    page.get_by_text("0 is less than the minimum of 1").first.wait_for()
    shot(page, "form-refused")
    assert before == flow_runs(prefect)


def test_a_run_from_the_form_completes_and_shows_coverage(served, page):
    """The filled form makes a run; its page says Completed, and its coverage artifact is there to read."""
    root, prefect, _ = served
    open_form(page, prefect, "train")
    before = flow_runs(prefect)
    fill(page, root, 2)
    page.get_by_role("button", name="Submit").click()
    deadline = time.monotonic() + 60
    while len(flow_runs(prefect)) == len(before) and time.monotonic() < deadline:
        time.sleep(0.5)
    (made,) = set(flow_runs(prefect)) - set(before)
    deadline = time.monotonic() + 600
    state = {}
    while state.get("type") not in ENDED and time.monotonic() < deadline:
        state = ask_patiently(f"http://127.0.0.1:{prefect}/api/flow_runs/{made}")["state"]
        time.sleep(1)
    assert "COMPLETED" == state["type"], state
    page.goto(f"http://127.0.0.1:{prefect}/runs/flow-run/{made}")
    page.get_by_text("Completed").first.wait_for()
    time.sleep(3)  # the picture of the run is drawn, not written
    shot(page, "run-completed")
    body = {"artifacts": {"flow_run_id": {"any_": [made]}}}
    listed = ask_patiently(f"http://127.0.0.1:{prefect}/api/artifacts/filter", body=body)
    gate = next(item for item in listed if str(item["key"]).startswith("coverage-gate-"))
    page.goto(f"http://127.0.0.1:{prefect}/artifacts/artifact/{gate['id']}")
    page.get_by_text("Coverage gate").first.wait_for()
    page.get_by_role("table").first.wait_for()
    shot(page, "coverage-artifact")


def start(prefect, request):
    """Ask for a run of the training deployment; return the flow run's id."""
    body = {"deployments": {"name": {"any_": ["train"]}}}
    (deployment,) = ask_patiently(f"http://127.0.0.1:{prefect}/api/deployments/filter", body=body)
    place = f"http://127.0.0.1:{prefect}/api/deployments/{deployment['id']}/create_flow_run"
    return ask_patiently(place, body={"parameters": {"request": request}, "state": {"type": "SCHEDULED"}})["id"]


def await_state(prefect, flow_run, *wanted):
    """Wait until a flow run is in one of some states; return its type."""
    deadline, state = time.monotonic() + 600, None
    while state not in (*wanted, *ENDED) and time.monotonic() < deadline:
        state = ask_patiently(f"http://127.0.0.1:{prefect}/api/flow_runs/{flow_run}")["state"]["type"]
        time.sleep(1)
    return state


def test_a_person_answers_a_paused_run_on_its_page(served, page):
    """No interval is as narrow as asked: the run pauses, its form shows why and takes an answer, and it goes on."""
    root, prefect, _ = served
    request = {
        "workspace": str(root),
        "run": "alarmed",
        "train": {"iterations": 1, "on_alarm": "pause"},
        "coverage": {"min_rows": 8, "min_prompts": 4, "max_mean_width": 1e-6},
    }
    flow_run = start(prefect, request)
    assert "PAUSED" == await_state(prefect, flow_run, "PAUSED")
    page.goto(f"http://127.0.0.1:{prefect}/runs/flow-run/{flow_run}")
    page.get_by_role("button", name="Resume").first.click()
    form = page.locator(".p-modal")
    form.get_by_text("Coverage alarm at iteration 1 of run alarmed").wait_for()
    form.get_by_text("mean width must be at most 1e-06").first.wait_for()
    form.locator(".p-select-button__control").first.focus()
    page.keyboard.press("Space")
    page.locator(".p-select-option", has_text="continue").click()
    form.locator("textarea, input[type=text]").last.fill("the limit was a typing error")
    shot(page, "pause-form")
    form.get_by_role("button", name="Submit").click()
    assert "COMPLETED" == await_state(prefect, flow_run)
    folder = root / "runs/alarmed/iterations/000001"
    answer = json.loads((folder / "gate.json").read_text())["answer"]
    assert {"choice": "continue", "reason": "the limit was a typing error"} == answer
    assert (root / "runs/alarmed/checkpoints/000001/COMPLETE").is_file()


def test_mlflow_shows_the_metrics_of_the_run(served, page):
    """The page of the tracking run names its metrics, and the registered model has its version."""
    root, _, mlflow = served
    tracker = Tracker.open(root)
    run_id = tracker.find_run("rangeline.kind", "train")
    page.goto(f"http://127.0.0.1:{mlflow}/#/experiments/{tracker.experiment_id}/runs/{run_id}")
    page.get_by_text("train/accuracy").first.wait_for()
    shot(page, "mlflow-run")
    page.goto(f"http://127.0.0.1:{mlflow}/#/models/rangeline-policy")
    page.get_by_text("Version 1").first.wait_for()
    shot(page, "mlflow-model")
