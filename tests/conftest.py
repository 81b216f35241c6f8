"""A quiet environment, one Prefect server, one migrated tracking store, and workspaces in miniature."""

import json
import os
import shutil
import tempfile
from pathlib import Path

import pytest

HOMES = pytest.StashKey[Path]()

# Set here, for the Hub's client reads it when the conftest of a room imports it, which comes before pytest_configure.
os.environ["HF_HUB_OFFLINE"] = "1"


def pytest_configure(config):
    """Send homes, caches and remotes of all tools to one folder, before any tool is imported."""
    home = Path(tempfile.mkdtemp(prefix="rangeline-tests-"))
    config.stash[HOMES] = home
    os.environ.update(
        {
            "DO_NOT_TRACK": "true",
            "DVC_GLOBAL_CONFIG_DIR": str(home / "dvc-global"),
            "DVC_NO_ANALYTICS": "1",
            "DVC_SITE_CACHE_DIR": str(home / "dvc-site"),
            "DVC_SYSTEM_CONFIG_DIR": str(home / "dvc-system"),
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GX_ANALYTICS_ENABLED": "false",
            "HF_HOME": str(home / "hub"),
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_OFFLINE": "1",
            "MLFLOW_DISABLE_TELEMETRY": "true",
            "OMP_NUM_THREADS": "1",
            "PREFECT_HOME": str(home / "prefect"),
            "PREFECT_LOGGING_LEVEL": "CRITICAL",
            "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            # A busy machine starts a server slowly.
            "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "180",
            "PREFECT_SERVER_LOGGING_LEVEL": "CRITICAL",
            "RANGELINE_CACHE": str(home / "cache"),
            "RANGELINE_DVC_REMOTE": str(home / "remote"),
            "TOKENIZERS_PARALLELISM": "false",
            "TRANSFORMERS_VERBOSITY": "error",
            "XDG_CACHE_HOME": str(home / "xdg-cache"),
            "XDG_CONFIG_HOME": str(home / "xdg-config"),
            "XDG_DATA_HOME": str(home / "xdg-data"),
            "XDG_STATE_HOME": str(home / "xdg-state"),
        }
    )
    for name in ("MLFLOW_TRACKING_URI", "PREFECT_API_KEY", "PREFECT_API_URL", "RANGELINE_POLICY"):
        os.environ.pop(name, None)


def pytest_unconfigure(config):
    """Remove that folder."""
    shutil.rmtree(config.stash[HOMES], ignore_errors=True)


@pytest.fixture(scope="session")
def prefect_server():
    """Run one real Prefect server for all tests that ask for it; give its address."""
    from prefect.settings import PREFECT_API_URL
    from prefect.testing.utilities import prefect_test_harness

    with prefect_test_harness(server_startup_timeout=120):
        yield PREFECT_API_URL.value()


@pytest.fixture(scope="session")
def tracking_store(tmp_path_factory):
    """Migrate one tracking database, to be copied into workspaces: migrating takes seconds."""
    from mlflow import MlflowClient

    path = tmp_path_factory.mktemp("tracking") / "mlflow.db"
    MlflowClient(f"sqlite:///{path}").search_experiments()
    return path


@pytest.fixture(scope="session")
def tiny_model_folder(tmp_path_factory):
    """Save the small random model that is policy and judge."""
    from tiny import save_model

    return save_model(tmp_path_factory.mktemp("model") / "base")


@pytest.fixture(scope="session")
def tiny_workspace(tiny_model_folder, tracking_store):
    """Give the maker of tiny workspaces: a folder, and settings that differ from the usual."""
    from tiny import make_workspace

    def make(folder, **over):
        return make_workspace(folder, tiny_model_folder, tracking_store, **over)

    return make


@pytest.fixture(scope="session")
def toy(tmp_path_factory):
    """Make one word world with its calibrated workspace; tests train runs of their own names in it."""
    from tiny import make_toy

    return make_toy(tmp_path_factory.mktemp("toy") / "w")


@pytest.fixture(scope="session")
def trained(tiny_model_folder, tmp_path_factory):
    """Run every stage once on a tiny random model; not to be changed, but copied."""
    from tiny import ROOT, Trained, problems, write_settings

    from rangeline.stages import anchors, calibration, data
    from rangeline.stages.progress import silent
    from rangeline.stages.run import RunFolder
    from rangeline.stages.session import TrainingSession
    from rangeline.stages.warmup import warmup
    from rangeline.stages.workspace import open_workspace

    root = tmp_path_factory.mktemp("stages") / "w"
    (root / "data" / "raw").mkdir(parents=True)
    lines = [json.dumps(row) + "\n" for row in problems()]
    (root / "data" / "raw" / "problems.jsonl").write_text("".join(lines))
    for folder in ("rubrics", "conditions"):
        shutil.copytree(ROOT / folder, root / folder)
    model = {"model": str(tiny_model_folder)}
    write_settings(root, policy=model, judge=model)
    workspace, config = open_workspace(root)
    for stage in (data.generate, data.ingest, data.split):
        stage(workspace, config)
    for slow in (warmup, calibration.calibrate, anchors.anchors, anchors.metric_head):
        slow(workspace, config, silent)
    with TrainingSession(workspace, config, run="r") as session:
        for number in session.remaining:
            session.sample(number)
            session.judge_states(number)
            session.bound(number)
            session.cover(number)
            session.update(number)
            session.iteration(number).write_timings({"time/generate_s": 1.0})
    return Trained(workspace, config, RunFolder(workspace.runs / "r"))


@pytest.fixture(scope="session")
def calibrated_workspace(tiny_workspace, prefect_server, tmp_path_factory):
    """Run prepare, warmup and calibrate once, through their flows; not to be changed, but copied."""
    from flows.calibrate_judge import CalibrateRequest, calibrate
    from flows.common import DataRequest
    from flows.prepare_data import PrepareRequest, prepare
    from flows.warm_up_policy import warmup

    root = tiny_workspace(tmp_path_factory.mktemp("calibrated") / "work space")
    prepare(PrepareRequest(workspace=str(root)))
    warmup(DataRequest(workspace=str(root)))
    calibrate(CalibrateRequest(workspace=str(root), alpha=0.1))
    return root


@pytest.fixture(scope="session")
def copied_workspace(calibrated_workspace, tracking_store):
    """Give the maker of copies of the calibrated workspace."""
    from tiny import copy_workspace

    def copy(folder):
        return copy_workspace(calibrated_workspace, folder, tracking_store)

    return copy


@pytest.fixture(scope="session")
def vllm_served(tmp_path_factory):
    """Run one vLLM server on a small model for all tests that ask for it; it takes half a minute to start."""
    from served import Served, save_tied

    from rangeline.rollout.vllm_client import VllmClient
    from rangeline.rollout.vllm_server import ServerOptions, VllmServer

    folder = tmp_path_factory.mktemp("served")
    options = ServerOptions(model=save_tied(folder / "model"), sync_root=folder / "root", max_model_len=768)
    with VllmServer.start(options, log=folder / "vllm.log") as server:
        yield Served(server, VllmClient(server.url), folder / "root", options.model)


@pytest.fixture(scope="session")
def solved(tiny_model_folder, tmp_path_factory):
    """Make data and start of a workspace whose labelled problems are worked out; not to be changed, but copied."""
    from tiny import ROOT, Trained, problems, write_settings

    from rangeline.stages import data
    from rangeline.stages.progress import silent
    from rangeline.stages.run import RunFolder
    from rangeline.stages.warmup import warmup
    from rangeline.stages.workspace import open_workspace

    root = tmp_path_factory.mktemp("solved") / "w"
    (root / "data" / "raw").mkdir(parents=True)
    shutil.copytree(ROOT / "rubrics", root / "rubrics")
    lines = [json.dumps(worked_out(row)) + "\n" for row in problems()]
    (root / "data" / "raw" / "problems.jsonl").write_text("".join(lines))
    model = {"model": str(tiny_model_folder)}
    write_settings(root, policy=model, judge=model, sampling={"max_tokens": 24}, warmup={"epochs": 30})
    workspace, config = open_workspace(root)
    for stage in (data.generate, data.ingest, data.split):
        stage(workspace, config)
    warmup(workspace, config, silent)
    return Trained(workspace, config, RunFolder(workspace.runs / "r"))


def worked_out(row):
    """Return a problem that asks for its steps, with them in its reference: `12 - 10 = 2` before `#### 2`."""
    small, large = row["prompt"].split(" + ? = ")
    answer = row["reference"]
    steps = answer if answer is None else f"{large} - {small} = {answer}\n#### {answer}"
    return {**row, "suite": "grade_school_math", "reference": steps}
