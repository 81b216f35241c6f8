"""The iteration's estimator: set, or chosen on labelled rows alone, the same in every sitting and on record."""

import json
from dataclasses import replace

import numpy as np
import pytest

from rangeline.advantage_choice import Candidate
from rangeline.advantages import compute_advantages
from rangeline.config import AdvantageConfig, merge
from rangeline.conformal.adaptive import blend, start_level
from rangeline.conformal.intervals import CalibrationSet
from rangeline.lineage import MANIFEST_NAME, read_manifest
from rangeline.stages.adaptation import Repair
from rangeline.stages.estimator import LabelledRows, choose_estimator, set_estimator
from rangeline.stages.run import RECENT_ITERATIONS
from rangeline.stages.session import TrainingSession
from rangeline.stages.tables import read_advantages, read_intervals

AUTO = AdvantageConfig(estimator="auto", reference_width=0.25)


def rows_of(score, truth, scale, name="p"):
    """Make scored rows, four a prompt."""
    num = len(score)
    ids = [f"{name}{i // 4}" for i in range(num)]
    return CalibrationSet.build(ids, np.zeros((num, 1)), score_C=score, scale_C=scale, truth_C=truth)


CLEAR = rows_of([0.2, 0.4, 0.6, 0.8] * 8, [0.2, 0.4, 0.6, 0.8] * 8, [0.1] * 32)
"""The judge is always right: every candidate agrees with the truth, and the first is taken."""
BEST_UNRATED = rows_of([0.5, 0.5, 0.7, 0.2] * 8, [1.0, 1.0, 0.7, 0.2] * 8, [0.5, 0.5, 0.05, 0.05] * 8)
"""The two that it cannot rate are the best ones."""


def choose_on(first, recent=(), settings=AUTO):
    """Choose on rows of the first policy and of recent audits, bounded by rows that the judge cannot all rate."""
    labelled = LabelledRows(source=rows_of([0.5], [0.5], [1.0], "s"), calibration=first)
    repair = Repair(level=start_level(0.1), blended=blend(BEST_UNRATED, [], ratio=None, discount=1.0))
    return choose_estimator(settings, labelled, recent, repair=repair, alpha=0.1)


def test_settings_that_leave_nothing_open_are_taken_as_they_are():
    """With estimator and width set, nothing is chosen and nothing recorded."""
    result = choose_on(CLEAR, settings=AdvantageConfig(estimator="dr_grpo", reduction="upper", reference_width=0.4))
    assert ("dr_grpo", "upper", 0.4) == (
        result.settings.estimator,
        result.settings.reduction,
        result.settings.reference_width,
    )
    assert result.record is None


def test_an_automatic_width_leaves_the_estimator():
    """`reference_width: auto` alone sets the width, and says which."""
    result = choose_on(CLEAR, settings=AdvantageConfig(estimator="range", reference_width="auto"))
    assert ("range", "middle") == (result.settings.estimator, result.settings.reduction)
    assert {"reference_width": result.settings.reference_width} == result.record
    assert 0 < result.settings.reference_width <= 0.5


def test_recent_audits_take_over_from_the_first_policy():
    """The first policy's rollouts choose alone at the start, and have no say once enough audits are there."""
    early, late = choose_on(CLEAR), choose_on(CLEAR, [BEST_UNRATED] * RECENT_ITERATIONS)
    assert ("middle", "upper") == (early.settings.reduction, late.settings.reduction)
    assert (1.0, 0.0) == (early.record["first_weight"], late.record["first_weight"])
    alone = choose_on(replace_truth(CLEAR, 0.5), [BEST_UNRATED] * RECENT_ITERATIONS)
    assert alone.record["scores"] == late.record["scores"]


def replace_truth(rows, value):
    """Return rows whose truth is one value, under their own prompts and nonconformity."""
    truth = np.full(len(rows), value)
    return replace(rows, truth_C=truth, nonconformity_C=np.abs(rows.score_C - truth) / rows.scale_C)


def test_a_run_with_an_automatic_estimator_is_on_record(copy):
    """Each iteration holds the choice and its scores under its manifest; a new sitting chooses alike."""
    over = {
        "advantages": {"estimator": "auto", "reference_width": "auto", "advantage_scale": "none"},
        "train": {"audit_prompts": 3},
    }
    config = copy.config.model_validate(merge(copy.config.model_dump(), over))
    with TrainingSession(copy.workspace, config, run="auto") as session:
        for number in (1, 2):
            for stage in (session.sample, session.judge_states, session.bound, session.cover, session.update):
                stage(number)
        folder = session.iteration(2).folder
    first = (folder / "choice.json").read_bytes()
    # An iteration without its manifest is not done: the next sitting does it again.
    (folder / MANIFEST_NAME).unlink()
    with TrainingSession(copy.workspace, config, run="auto") as session:
        for stage in (session.sample, session.judge_states, session.bound, session.cover, session.update):
            stage(2)
    assert first == (folder / "choice.json").read_bytes()
    record = json.loads(first)
    assert 1 - 1 / RECENT_ITERATIONS == record["first_weight"]
    best = max(record["scores"], key=lambda item: item["score"])
    assert record["chosen"] == {name: value for name, value in best.items() if name != "score"}
    expected = compute_advantages(read_intervals(folder / "policy_intervals.parquet"), **record["chosen"])
    assert (expected.value_N == read_advantages(folder / "advantages.parquet").value_N).all()
    names = {ref.path.rpartition("/")[2] for ref in read_manifest(folder / MANIFEST_NAME).outputs}
    assert "choice.json" in names


@pytest.mark.parametrize("settings", [{"estimator": "auto", "reduction": "upper"}, {"reference_width": "auto"}])
def test_where_nothing_is_labelled_open_settings_are_the_papers_rule(settings):
    """Without labelled rows to choose by, auto is the paper's rule on middles at the default width."""
    chosen = set_estimator(AdvantageConfig(**settings))
    assert Candidate(estimator="range", reduction="middle", reference_width=0.25) == chosen.settings
    assert chosen.record is None
