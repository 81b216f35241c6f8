"""What a run leaves on disk: no pickle in any artifact, and no secret of its environment anywhere."""

import os
import shutil
import zipfile

import pytest
from tiny import cli, make_toy

pytestmark = [pytest.mark.slow, pytest.mark.ops]

CANARY = "canary-7f3a91"
SECRETS = (
    "HF_TOKEN",
    "OPENAI_API_KEY",
    "AWS_SECRET_ACCESS_KEY",
    "MLFLOW_TRACKING_PASSWORD",
    "PREFECT_API_KEY",
    "WANDB_API_KEY",
    "DVC_STUDIO_TOKEN",
    "RANGELINE_JUDGE_KEY",
)
FORMS = {
    *(".json", ".jsonl", ".parquet", ".safetensors", ".ubj", ".yaml", ".html", ".md", ".txt", ".css", ".lock"),
    *(".sqlite", ".db", ".jinja", ".gitignore", ".dvc", ".toml"),
    *(".svg", ".png", ".gif", ".ico", ".otf"),  # of Data Docs
}
PICKLES = tuple(bytes([0x80, protocol]) for protocol in range(2, 6))


@pytest.fixture(scope="module")
def left(tmp_path_factory, tracking_store):
    """Train with secrets in the environment, by the command line with a server of its own; give folder and words."""
    workspace, _ = make_toy(tmp_path_factory.mktemp("left") / "w")
    root = workspace.root
    (root / "mlruns").mkdir()
    shutil.copy(tracking_store, root / "mlruns" / "mlflow.db")
    secrets = {name: f"{CANARY}-{name}" for name in SECRETS}
    environ = {**secrets, "PREFECT_HOME": str(root / ".prefect"), "PREFECT_API_URL": ""}
    process = cli("train", "-w", root, "--run", "left", "--set", "train.iterations=1", environ=environ)
    words, _ = process.communicate(timeout=500)
    assert 0 == process.returncode, words
    return root, words


def files(root):
    """Return every file below a folder."""
    return [path for path in root.rglob("*") if path.is_file() and not path.is_symlink()]


def test_the_run_left_what_is_looked_through(left):
    """Checkpoint, tables, manifests and both databases are there: an empty folder would pass every other test."""
    names = {path.name for path in files(left[0])}
    assert {"model.safetensors", "optimizer.safetensors", "manifest.json", "mlflow.db", "prefect.db"} <= names
    assert {"policy_rollouts.parquet", "policy_intervals.parquet"} <= names


def test_no_secret_of_the_environment_is_left_anywhere(left):
    """A canary in eight variables is in no file, no database and no line that was printed."""
    root, words = left
    assert CANARY not in words
    assert [] == [str(path.relative_to(root)) for path in files(root) if CANARY.encode() in path.read_bytes()]


def test_no_artifact_is_a_pickle(left):
    """Every file of runs, models and data has a form that holds no code; none begins or is packed like a pickle."""
    root, _ = left
    made = [path for folder in ("runs", "models", "data") for path in files(root / folder)]
    assert set() == {path.suffix or path.name for path in made} - FORMS - {"COMPLETE"}
    for path in made:
        with path.open("rb") as file:
            assert not file.read(2).startswith(PICKLES), path
        assert not zipfile.is_zipfile(path), path


def test_files_are_readable_by_their_owner_and_not_executable(left):
    """Nothing that a run makes can be started as a program."""
    root, _ = left
    assert [] == [path.name for path in files(root / "runs") if os.access(path, os.X_OK)]
