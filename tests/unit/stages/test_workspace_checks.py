"""Findings about a workspace: settings, rubric, data, models, keys and stores, each with its fix."""

import sqlite3

import pytest

from rangeline.stages.new_workspace import NewWorkspace, create_workspace
from rangeline.stages.workspace_checks import check_address, check_model, check_store, check_workspace


@pytest.fixture
def fresh(tmp_path):
    """Write a new workspace with the example's data."""
    root = tmp_path / "mine"
    create_workspace(root, None, NewWorkspace(policy=str(tmp_path), judge=str(tmp_path), rubric="arithmetic"))
    return root


def states(root):
    """Return state by name."""
    return {item.name: item.state for item in check_workspace(root)}


def test_a_new_workspace_is_sound(fresh):
    """What `rangeline init` writes has nothing broken, and says that pools come next."""
    found = states(fresh)
    assert "broken" not in found.values()
    assert "note" == found["data"]


def test_a_folder_without_settings_is_told_of_init(tmp_path):
    """The fix of an empty folder is the command that fills it."""
    first = check_workspace(tmp_path)[0]
    assert ("workspace", "broken") == (first.name, first.state)
    assert "rangeline init" in first.fix


def test_labels_too_few_for_alpha_are_broken_and_few_are_noted(fresh):
    """A calibration pool that cannot serve alpha is found before anything is sampled; small pools are noted."""
    assert "note" == states(fresh)["labels"]
    params = fresh / "params.yaml"
    params.write_text(params.read_text().replace("alpha: 0.2", "alpha: 0.01"))
    first = next(item for item in check_workspace(fresh) if item.name == "labels")
    assert ("broken", "the calibration pool must hold 99 prompts for alpha=0.01; it has 12") == (
        first.state,
        first.says,
    )


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ("group_size: 8", "group_size: 1", "settings"),
        ("rubrics/arithmetic.yaml", "rubrics/absent.yaml", "rubric"),
        ("data/raw/example.jsonl", "data/raw/absent.jsonl", "data file"),
        ("key: ", "other: ", "settings"),
    ],
)
def test_what_would_fail_is_broken(fresh, old, new, name):
    """A wrong setting, an absent rubric and an absent data file are each broken, by name."""
    params = fresh / "params.yaml"
    params.write_text(params.read_text().replace(old, new))
    assert "broken" == states(fresh)[name]


def test_an_empty_key_is_broken_and_never_shown(fresh, monkeypatch):
    """The variable of a judge server's key is named; a value that is set is not printed."""
    params = fresh / "params.yaml"
    server = "client: server # http://x\n  url: http://127.0.0.1:9/v1\n  api_key_env: KEY_OF_TEST\n  "
    text = (
        params.read_text().replace("url: null\n  api_key_env: null", "", 1).replace("  client: model", f"  {server}", 1)
    )
    params.write_text(
        "\n".join(line for line in text.split("\n") if not line.strip().startswith("# name of the variable"))
    )
    assert "broken" == states(fresh)["judge key"]
    monkeypatch.setenv("KEY_OF_TEST", "s3cret")
    assert "ok" == states(fresh)["judge key"]
    assert "s3cret" not in str(check_workspace(fresh))


def test_a_damaged_store_is_broken(tmp_path):
    """A database whose bytes are no database is found before a run meets it."""
    path = tmp_path / "mlflow.db"
    assert "ok" == check_store("tracking store", path).state
    with sqlite3.connect(path) as store:
        store.execute("create table t (a)")
    assert "ok" == check_store("tracking store", path).state
    path.write_bytes(b"not a database" * 99)
    assert "broken" == check_store("tracking store", path).state


@pytest.mark.parametrize(
    ("name", "state"),
    [
        ("package:nosuchpackage", "broken"),
        ("/no/such/folder", "broken"),
        ("owner/model-of-nobody", "note"),
        ("fresh:gpt2", "ok"),
    ],
)
def test_models_are_looked_for_without_loading(name, state):
    """Packages and folders must be there; a model of the Hub is downloaded when first used."""
    assert state == check_model("policy", name).state


def test_a_server_that_does_not_answer_is_broken(monkeypatch):
    """An address in the environment is asked; a variable that is not set is no finding."""
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    assert ["broken"] == [item.state for item in check_address("PREFECT_API_URL", "/health")]
    monkeypatch.delenv("PREFECT_API_URL")
    assert [] == list(check_address("PREFECT_API_URL", "/health"))
