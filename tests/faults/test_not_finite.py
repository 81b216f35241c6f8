"""A loss that is no number stops the run before the step; the last good checkpoint goes on to the same bytes."""

import shutil

import pytest
import torch
from tiny import train_toy

from rangeline.errors import NonFiniteError
from rangeline.lineage import digest_file
from rangeline.stages.session import TrainingSession
from rangeline.stages.workspace import Workspace


def digests(run):
    """Return the digest of every file of a run that has no clock in it."""
    files = [path for folder in ("checkpoints", "iterations") for path in run.glob(f"{folder}/**/*") if path.is_file()]
    return {path.relative_to(run).as_posix(): digest_file(path) for path in files if path.name != "timings.json"}


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_run_whose_loss_is_no_number_stops_and_goes_on_from_the_last_good_checkpoint(value, toy, tmp_path):
    """With a weight that is no number before the update of iteration 3, the run stops with checkpoint 2 as it was."""
    place, config = toy
    place = Workspace(shutil.copytree(place.root, tmp_path / "w", ignore=shutil.ignore_patterns("runs")))
    calm = train_toy(place, config, "calm").root
    broken = train_toy(place, config, "broken", until=2).root
    before = digests(broken)
    with TrainingSession(place, config, run="broken") as session:
        session.sample(3)
        session.judge_states(3)
        session.bound(3)
        session.cover(3)
        with torch.no_grad():
            next(session.worker.model.parameters()).view(-1)[0] = value
        with pytest.raises(NonFiniteError, match="must be finite"):
            session.update(3)
    assert before == {name: digest for name, digest in digests(broken).items() if name in before}
    assert not (broken / "iterations" / "000003" / "manifest.json").exists()
    assert not (broken / "checkpoints" / "000003").exists()
    train_toy(place, config, "broken")
    # The folder's name is in state and manifests; what was learned is not.
    for name in ("policy/model.safetensors", "optimizer.safetensors"):
        last = f"checkpoints/{config.train.iterations:06d}/{name}"
        assert digest_file(calm / last) == digest_file(broken / last)
