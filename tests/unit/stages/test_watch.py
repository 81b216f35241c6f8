"""Evidence over a run: each prompt counts once, the states are on disk, and a recalibration starts them anew."""

import json

import numpy as np
import pytest

from rangeline.errors import CalibrationError
from rangeline.stages.calibration import fresh_calibration, load_calibration, read_truth
from rangeline.stages.session import TrainingSession
from rangeline.stages.tables import read_intervals, read_judgments


def monitor_of(run, number):
    """Read what the run knew after an iteration."""
    return json.loads((run.iteration(number) / "monitor.json").read_text())


def audited(run, number):
    """Return the prompts that an iteration audited."""
    return set(read_intervals(run.iteration(number) / "audit_intervals.parquet").prompt_id_N)


def longer(trained, iterations, **coverage):
    """Return settings for more iterations of the same run."""
    train = trained.config.train.model_copy(update={"iterations": iterations})
    return trained.config.model_copy(
        update={"train": train, "coverage": trained.config.coverage.model_copy(update=coverage)}
    )


def step_through(session, number):
    """Do an iteration up to its coverage."""
    for step in (session.sample, session.judge_states, session.bound):
        step(number)
    return session.cover(number)


def test_a_prompt_is_evidence_once(copy):
    """What the monitor has seen is every audited prompt once, also where the audit pool comes round again."""
    with TrainingSession(copy.workspace, longer(copy, 6), run="r") as session:
        for number in session.remaining:
            step_through(session, number)
            session.update(number)
    for number in range(1, 7):
        stored = monitor_of(copy.run, number)
        audits = set.union(*(audited(copy.run, n) for n in range(1, number + 1)))
        assert len(stored["seen"]) == stored["verdict"]["num_prompts"]
        assert set(stored["seen"]) <= audits
    assert monitor_of(copy.run, 6)["verdict"]["num_prompts"] < 6 * len(audited(copy.run, 1))


def test_states_go_on_where_the_iteration_before_left_them(copy):
    """Doing an iteration again after a restart gives the same bytes of evidence."""
    config = longer(copy, 3)
    contents = []
    for _ in range(2):
        with TrainingSession(copy.workspace, config, run="r") as session:
            step_through(session, 3)
        contents.append((copy.run.iteration(3) / "monitor.json").read_bytes())
    assert contents[0] == contents[1]


def test_recalibration_takes_audited_rows_and_starts_the_evidence_anew(copy):
    """After it the calibration set is the audited rows, unweighted, and the monitor begins with what comes next."""
    config = longer(copy, 4)
    with TrainingSession(copy.workspace, config, run="r") as session:
        step_through(session, 3)
        before = read_intervals(copy.run.iteration(3) / "policy_intervals.parquet")
        prompts = session.recalibrate(3)
        assert set.union(*(audited(copy.run, n) for n in (1, 2, 3))) >= set(session.calibration.calibration.prompt_id_C)
        assert prompts == len(set(session.calibration.calibration.prompt_id_C))
        after = read_intervals(copy.run.iteration(3) / "policy_intervals.parquet")
        assert before.prompt_id_N == after.prompt_id_N
        session.update(3)
    with TrainingSession(copy.workspace, config, run="r") as session:
        assert session.calibration.is_fresh
        assert prompts == len(set(session.calibration.calibration.prompt_id_C))
        step_through(session, 4)
    assert audited(copy.run, 4) >= set(monitor_of(copy.run, 4)["seen"])


def test_an_interrupted_recalibration_leaves_no_trace(copy):
    """A recalibration whose iteration was not finished is not taken up by the next sitting."""
    with TrainingSession(copy.workspace, longer(copy, 3), run="r") as session:
        step_through(session, 3)
        session.recalibrate(3)
    with TrainingSession(copy.workspace, longer(copy, 3), run="r") as session:
        assert not session.calibration.is_fresh
    assert not (copy.run.iteration(3) / "recalibration.parquet").exists()


def test_too_few_audited_prompts_cannot_recalibrate(trained):
    """Fresh labels must be enough for alpha, by prompts and not by rollouts."""
    base = load_calibration(trained.workspace, trained.config)
    folder = trained.run.iteration(1)
    judged = [(read_judgments(folder / "audit_judgments.parquet"), read_truth(folder / "audit_coverage.parquet"))]
    assert np.isfinite(judged[0][1]).any()
    with pytest.raises(CalibrationError, match="alpha"):
        fresh_calibration(base, judged, 0.001)
