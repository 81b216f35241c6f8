"""Training by anchor contrast from the command line: anchors are made first, versioned, tracked, audited, resumed."""

import json
import shutil

import pytest

from flows.common import TrainRequest
from flows.train_policy import train
from rangeline.audit import audit
from rangeline.config import merge
from rangeline.errors import ConfigError
from rangeline.lineage import MANIFEST_NAME, digest_file, read_manifest
from rangeline.stages.run import RunFolder
from rangeline.stages.workspace import open_workspace
from tasks.lineage import read_settings_of
from tasks.tracking import Tracker
from tasks.versioning import locked_outputs, status

pytestmark = pytest.mark.slow


def _request(root, iterations):
    settings = read_settings_of(str(root)).model_dump()
    over = {"train": {"iterations": iterations}, "reward": {"source": "anchor_contrast"}}
    values = merge(
        {name: settings[name] for name in ("train", "intervals", "advantages", "objective", "coverage")}, over
    )
    return TrainRequest(workspace=str(root), run="rrpo", **values)


def test_training_makes_anchors_resumes_and_is_audited(copied_workspace, prefect_server, tmp_path):
    """One iteration, then a second by the same run: anchors are made once, and the chain reaches all of them."""
    root = copied_workspace(tmp_path / "w")
    shutil.rmtree(root / "data" / "anchors", ignore_errors=True)
    assert ("rrpo", 1) == tuple(train(_request(root, 1))[key] for key in ("run", "iteration"))
    place, _ = open_workspace(root)
    made = {name: digest_file(getattr(place, name) / MANIFEST_NAME) for name in ("anchors", "metric_head")}
    assert {"data/anchors", "data/metric_head"} <= set(locked_outputs(root))
    result = train(_request(root, 2))
    assert (2, "not measured") == (result["iteration"], result["covered"])
    assert made == {name: digest_file(getattr(place, name) / MANIFEST_NAME) for name in made}
    run = RunFolder(place.run("rrpo"))
    parents = {ref.path for ref in read_manifest(run.iteration(2) / MANIFEST_NAME).parents}
    assert {"data/anchors/manifest.json", "data/metric_head/manifest.json"} <= parents
    node = audit(root, run.checkpoint(2), original=lambda name: None)
    assert () == node.failures
    seen = {finding.path for item in node.walk() for finding in item.findings}
    assert {"data/anchors/index.parquet", "data/metric_head/head.safetensors"} <= seen
    assert "conditions/reasoning_gym.yaml" in seen
    metrics = json.loads((run.iteration(2) / "metrics.json").read_text())
    assert metrics["reward/contrast_mean_spread"] > 0
    assert metrics["reward/drift_alarm"] in (0, 1)
    assert {} == {name: said for name, said in status(root).items() if name in ("anchors", "metric_head")}
    tracker = Tracker.open(root)
    for stage in made:
        assert tracker.find_run("rangeline.manifest", made[stage][:32]) is not None

    (root / "conditions" / "reasoning_gym.yaml").write_text(
        (root / "conditions" / "reasoning_gym.yaml").read_text().replace('"Be exact."', '"Answer now."')
    )
    with pytest.raises(ConfigError, match="Run 'rrpo' was started with other settings, data or calibration"):
        train(_request(root, 3))
