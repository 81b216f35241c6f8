"""The run's estimator: set, or chosen on labelled rows alone, the same in every sitting and on record."""

import json

import pytest

from rangeline.advantages import compute_advantages
from rangeline.config import AdvantageConfig, merge
from rangeline.errors import ConfigError
from rangeline.lineage import MANIFEST_NAME, read_manifest
from rangeline.stages.calibration import load_calibration, source_rows
from rangeline.stages.estimator import choose_estimator, set_estimator
from rangeline.stages.session import TrainingSession
from rangeline.stages.tables import read_advantages, read_intervals


def choosing(trained, **advantages):
    """Return settings that leave advantages open."""
    return trained.config.model_validate(merge(trained.config.model_dump(), {"advantages": advantages}))


def chosen(trained, settings):
    """Choose on the workspace's labelled rows."""
    calibration = load_calibration(trained.workspace, trained.config)
    source = source_rows(trained.workspace, calibration)
    return choose_estimator(settings, source, calibration.calibration, alpha=trained.config.intervals.alpha)


def test_settings_that_leave_nothing_open_are_taken_as_they_are(trained):
    """With estimator and width set, nothing is chosen and nothing recorded."""
    settings = AdvantageConfig(estimator="dr_grpo", reduction="upper", reference_width=0.4)
    result = chosen(trained, settings)
    assert ("dr_grpo", "upper", 0.4) == (
        result.settings.estimator,
        result.settings.reduction,
        result.settings.reference_width,
    )
    assert result.record is None


def test_an_automatic_width_leaves_the_estimator(trained):
    """`reference_width: auto` alone sets the width, and says which."""
    result = chosen(trained, AdvantageConfig(estimator="range", reference_width="auto"))
    assert ("range", "middle") == (result.settings.estimator, result.settings.reduction)
    assert {"reference_width": result.settings.reference_width} == result.record
    assert 0 < result.settings.reference_width <= 0.5


def test_a_run_with_an_automatic_estimator_is_on_record(copy):
    """Each iteration holds the choice and its scores under its manifest, and its advantages are the chosen ones."""
    config = choosing(copy, estimator="auto", reference_width="auto")
    with TrainingSession(copy.workspace, config, run="auto") as session:
        for stage in (session.sample, session.judge_states, session.bound, session.cover, session.update):
            stage(1)
        folder = session.iteration(1).folder
    with TrainingSession(copy.workspace, config, run="auto") as session:
        again = session.estimator
    record = json.loads((folder / "choice.json").read_text())
    assert again.record == record
    best = max(record["scores"], key=lambda item: item["score"])
    assert record["chosen"] == {name: value for name, value in best.items() if name != "score"}
    expected = compute_advantages(read_intervals(folder / "policy_intervals.parquet"), **record["chosen"])
    assert (expected.value_N == read_advantages(folder / "advantages.parquet").value_N).all()
    names = {ref.path.rpartition("/")[2] for ref in read_manifest(folder / MANIFEST_NAME).outputs}
    assert "choice.json" in names


@pytest.mark.parametrize("settings", [{"estimator": "auto"}, {"reference_width": "auto"}])
def test_open_settings_need_labelled_rows(settings):
    """What is left open cannot be taken as it is."""
    with pytest.raises(ConfigError, match="must be set where nothing is labelled"):
        set_estimator(AdvantageConfig(**settings))
