"""Laws of a whole training run over two processes: what it writes is what one process writes."""

import json
from pathlib import Path

import pytest
from tiny import make_toy, train_toy

from rangeline.errors import RangelineError
from rangeline.stages.session import TrainingSession

pytestmark = pytest.mark.slow


def metrics(folder, number):
    """Return what an iteration measured."""
    return json.loads((folder.iteration(number) / "metrics.json").read_text(encoding="utf-8"))


def test_run_over_two_processes_is_that_of_one(tmp_path):
    """Two iterations agree with those of one process; the second may go on in one, and adapters train too."""
    workspace, config = make_toy(tmp_path / "toy", train={"iterations": 2})
    two = config.model_copy(update={"processes": config.processes.model_copy(update={"count": 2})})
    alone = train_toy(workspace, config, "alone")
    together = train_toy(workspace, two, "together")
    for number in (1, 2):
        expected, actual = metrics(alone, number), metrics(together, number)
        assert set(expected) == set(actual)
        for name in ("policy/loss", "policy/grad_norm", "evaluation/accuracy"):
            if name in expected:
                assert expected[name] == pytest.approx(actual[name], rel=1e-3, abs=1e-6)
    train_toy(workspace, two, "moved", until=1)
    moved = train_toy(workspace, config, "moved")
    assert metrics(alone, 2)["advantage/rms"] == pytest.approx(metrics(moved, 2)["advantage/rms"], rel=1e-3)
    lora = config.model_copy(update={"lora": config.lora.model_copy(update={"rank": 2})})
    adapted = train_toy(workspace, lora, "adapted")
    assert (adapted.checkpoint(2) / "adapter" / "adapter_model.safetensors").is_file()
    assert (adapted.checkpoint(2) / "policy" / "model.safetensors").is_file()


def test_a_session_that_cannot_open_leaves_no_process(tmp_path):
    """Where the judge cannot be opened, the processes that hold the policy are ended with the error."""
    workspace, config = make_toy(tmp_path / "toy", train={"iterations": 1})
    two = config.model_copy(update={"processes": config.processes.model_copy(update={"count": 2})})
    session = TrainingSession(workspace, two, run="unopened")
    for rubric in (workspace.root / "rubrics").iterdir():
        rubric.unlink()
    with pytest.raises(RangelineError, match="rubric"), session:
        pass
    assert not any(Path(f"/proc/{pid}/exe").exists() for pid in session.worker.pids)
