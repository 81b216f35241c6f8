"""A training flow that is asked to stop ends after a complete iteration, and goes on from there."""

import os
import signal
import threading
import time

import pytest

from flows.run_nightly import request_of
from flows.train_policy import train as train_flow
from rangeline.errors import StoppedError
from rangeline.stages.run import RunFolder, last_complete
from rangeline.stages.workspace import open_workspace
from tasks.champions import aliased_checkpoints
from tasks.tracking import Tracker

pytestmark = pytest.mark.usefixtures("prefect_server")


def signal_when(path, number):
    """Send this process a signal as soon as a file is there; return the thread that waits for it."""

    def wait():
        deadline = time.monotonic() + 120
        while not path.is_file() and time.monotonic() < deadline:
            time.sleep(0.005)
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


def test_a_run_asked_to_stop_completes_its_iteration_and_goes_on_later(copied_workspace, tmp_path):
    """SIGTERM amid an iteration: it is finished, recorded once, and the same request does the rest."""
    root = copied_workspace(tmp_path / "work")
    place, config = open_workspace(root)
    run = RunFolder(place.runs / "r")
    asker = signal_when(run.iteration(1) / "policy_rollouts.parquet", signal.SIGTERM)
    message = r"Run 'r' must reach iteration 2; got a signal to stop, and stopped after iteration 1, which is complete"
    with pytest.raises(StoppedError, match=message) as caught:
        train_flow(request_of(str(root), config, "r"))
    asker.join()
    assert (143, 1) == (caught.value.exit_code, last_complete(run)[0])
    tracker = Tracker.open(root)
    parent = tracker.find_run("rangeline.kind", "train")
    assert "KILLED" == tracker.client.get_run(parent).info.status
    assert 2 == train_flow(request_of(str(root), config, "r"))["iteration"]
    assert "FINISHED" == tracker.client.get_run(parent).info.status
    assert [1, 2] == [point.step for point in tracker.client.get_metric_history(parent, "interval/mean_width")]


def test_a_checkpoint_that_an_alias_names_outlasts_retention(copied_workspace, tmp_path):
    """Trained further, a run keeps the checkpoint that the registry refers to, beside its newest ones."""
    root = copied_workspace(tmp_path / "work")
    _, config = open_workspace(root)

    def upto(number):
        train = config.train.model_copy(update={"iterations": number, "keep_best": "none"})
        train_flow(request_of(str(root), config.model_copy(update={"train": train}), "r"))

    upto(1)
    assert ["runs/r/checkpoints/000001"] == list(aliased_checkpoints(Tracker.open(root), "rangeline-policy").values())
    upto(3)
    folder = root / "runs" / "r" / "checkpoints"
    assert ["000001", "000002", "000003"] == sorted(path.name for path in folder.iterdir())
