"""Killed while the tracking store is written to, a run's record ends complete, and holds nothing twice."""

import shutil
import signal
from types import SimpleNamespace

import pytest

IMPORTS = ["mlflow", "mlflow.store.tracking.sqlalchemy_store", "tasks.records"]
OURS = "rangeline."


def record_of(root):
    """Return all that a tracking store says of a workspace's runs, but for clocks and ids."""
    from tasks.records import POLICY_MODEL, SCORER_MODEL
    from tasks.tracking import TIMING, Tracker

    client, experiment = (tracker := Tracker.open(root)).client, tracker.experiment_id
    runs = client.search_runs([experiment])
    names = {run.info.run_id: run.info.run_name for run in runs}

    def plain(text):
        for run_id, name in names.items():
            text = text.replace(run_id, name)
        return text

    def told(run):
        run_id = run.info.run_id
        keys = [key for key in run.data.metrics if not key.startswith(TIMING)]
        return {
            "status": run.info.status,
            "tags": {key: plain(value) for key, value in run.data.tags.items() if key.startswith(OURS)},
            "parameters": run.data.params,
            "metrics": {key: [(p.step, p.value) for p in client.get_metric_history(run_id, key)] for key in keys},
            "inputs": sorted((item.dataset.name, item.dataset.digest) for item in run.inputs.dataset_inputs),
            "artifacts": sorted(item.path for item in client.list_artifacts(run_id)),
        }

    versions = {
        name: [
            (version.version, sorted(client.get_model_version(name, version.version).aliases))
            for version in client.search_model_versions(f"name = '{name}'")
        ]
        for name in (POLICY_MODEL, SCORER_MODEL)
    }
    return {"runs": sorted([(run.info.run_name, told(run)) for run in runs], key=lambda item: item[0]), **versions}


@pytest.fixture(scope="module")
def recorded(begun, crash, tracking_store, tmp_path_factory):
    """Give a maker of untracked finished runs, the record of one that nobody killed, and its operations."""
    case = begun(2, snapshot_at=1)
    home = tmp_path_factory.mktemp("recorded")
    config = case.config(train={"iterations": 2})

    def fresh(name):
        root = home / name
        shutil.copytree(case.root, root)
        (root / "mlruns").mkdir(exist_ok=True)
        shutil.copy(tracking_store, root / "mlruns" / "mlflow.db")
        return root

    def track(root, **request):
        return crash(root, config, tracked=True, imports=IMPORTS, **request)

    root = fresh("undisturbed")
    said = track(root)
    assert said["ended"] == 0, said
    return SimpleNamespace(fresh=fresh, track=track, expected=record_of(root), seen=said["seen"])


def require_equal_record(recorded, moments):
    """Kill at each moment of the record, go on, and compare all that the store says."""
    for moment in moments:
        root = recorded.fresh(f"killed-{moment}")
        assert -signal.SIGKILL == recorded.track(root, kill_at=moment)["ended"], recorded.seen[moment]
        assert 0 == recorded.track(root)["ended"], recorded.seen[moment]
        assert recorded.expected == record_of(root), recorded.seen[moment]
        shutil.rmtree(root)


def test_the_undisturbed_record_is_whole(recorded):
    """Every iteration has its own run and its step in the run above, once; settings and data sets are there."""
    names = [name for name, _ in recorded.expected["runs"]]
    assert ["iteration 1", "iteration 2", "r"] == names
    above = recorded.expected["runs"][2][1]
    assert [1, 2] == [step for step, _ in above["metrics"]["interval/mean_width"]]
    assert above["inputs"]
    assert above["parameters"]


def test_killed_amid_settings_metrics_or_registration_nothing_is_lost_or_repeated(recorded):
    """Killed within the settings, within an iteration's metrics, or before the alias, the record ends the same."""
    inserts = [i for i, name in enumerate(recorded.seen) if "INSERT INTO metrics" in name]
    parameters = next(i for i, name in enumerate(recorded.seen) if "INSERT INTO params" in name)
    aliases = [i for i, name in enumerate(recorded.seen) if "INSERT INTO registered_model_aliases" in name]
    require_equal_record(recorded, [parameters, inserts[1], aliases[-1]])


@pytest.mark.slow
def test_killed_at_every_tenth_statement_nothing_is_lost_or_repeated(recorded):
    """Whatever statement was the last, the next sitting completes the record and repeats nothing."""
    require_equal_record(recorded, range(0, len(recorded.seen), 10))
