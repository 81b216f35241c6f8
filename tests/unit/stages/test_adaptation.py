"""Coverage repair along a run: audits count only for later iterations, and a resumed run repeats every byte."""

import json
from dataclasses import replace

import numpy as np
import pytest

from rangeline.config import merge
from rangeline.conformal.coverage import covered_N
from rangeline.conformal.misses import missed_by_prompt
from rangeline.lineage import MANIFEST_NAME, digest_file, read_manifest
from rangeline.stages.adaptation import bound_states, repair_of
from rangeline.stages.calibration import load_calibration, read_truth
from rangeline.stages.session import TrainingSession
from rangeline.stages.tables import read_intervals, read_judgments

FILES = ("adaptation.json", "policy_intervals.parquet", "audit_intervals.parquet", "coverage.json", "metrics.json")


def adapting(trained, iterations=3, **intervals):
    """Return settings of a new run that repairs its coverage, with few audited prompts an iteration."""
    over = {
        "train": {"iterations": iterations, "audit_prompts": 3},
        "intervals": {"adapt": "audit_window", "adapt_rate": 0.2} | intervals,
    }
    return trained.config.model_validate(merge(trained.config.model_dump(), over))


def step(session, number, *, recalibrate=False):
    """Do an iteration."""
    for stage in (session.sample, session.judge_states, session.bound, session.cover):
        stage(number)
    if recalibrate:
        session.recalibrate(number)
    session.update(number)


def finish(copy, config, name="a", **at):
    """Do what is left of a run and return its folder."""
    with TrainingSession(copy.workspace, config, run=name) as session:
        for number in session.remaining:
            step(session, number, recalibrate=number == at.get("recalibrate"))
        return session.opened.folder


def stored(run, number):
    """Read what an iteration's intervals were made from."""
    return json.loads((run.iteration(number) / "adaptation.json").read_text())


def audited(run, number):
    """Return the prompts that an iteration audited, and their mean miss."""
    folder = run.iteration(number)
    intervals = read_intervals(folder / "audit_intervals.parquet")
    covered, valid = covered_N(intervals, read_truth(folder / "audit_coverage.parquet"))
    missed, _ = missed_by_prompt(covered, valid, intervals.prompt_id_N)
    return set(intervals.prompt_id_N), float(np.mean(missed))


def test_an_interrupted_run_repeats_every_byte(copy):
    """A run that lost its third iteration after the coverage step ends with the same bytes as one that lost nothing."""
    config = adapting(copy)
    whole = finish(copy, config)
    with TrainingSession(copy.workspace, config, run="b") as session:
        for number in (1, 2):
            step(session, number)
        for stage in (session.sample, session.judge_states, session.bound, session.cover):
            stage(3)
    again = finish(copy, config, "b")
    for number in (1, 2, 3):
        for name in FILES:
            assert digest_file(whole.iteration(number) / name) == digest_file(again.iteration(number) / name)
        assert whole.iteration(number) / "adaptation.json" in {
            copy.workspace.root / ref.path for ref in read_manifest(whole.iteration(number) / MANIFEST_NAME).outputs
        }


def test_the_level_follows_the_audits_before(copy):
    """Each level is the one before, moved by the misses measured under it; the first is the promise."""
    run = finish(copy, adapting(copy))
    assert copy.config.intervals.alpha == stored(run, 1)["used"]["level"]
    for number in (1, 2):
        _, miss = audited(run, number)
        expected = stored(run, number)["used"]["level"] + 0.2 * (copy.config.intervals.alpha - miss)
        assert expected == pytest.approx(stored(run, number + 1)["used"]["level"])
        assert stored(run, number)["next"] == stored(run, number + 1)["used"]


def test_the_window_holds_earlier_audits_but_for_prompts_audited_now(copy):
    """Calibration rows are the frozen ones and those of earlier iterations, never of a prompt that is measured now."""
    config = adapting(copy, 4)
    run = finish(copy, config)
    calibration = load_calibration(copy.workspace, config)
    for number in range(1, 5):
        now, _ = audited(run, number)
        repair = repair_of(run, number, calibration, None, settings=config.intervals, audited=now)
        frozen = len(calibration.calibration)
        recent = set(repair.blended.rows.prompt_id_C[frozen:])
        before = set().union(*(audited(run, n)[0] for n in range(1, number)))
        assert recent <= before - now
        assert stored(run, number)["numbers"]["interval/window_rows"] == repair.blended.num_recent
        assert stored(run, number)["numbers"]["interval/window_prompts"] == len(recent)
    assert stored(run, 4)["numbers"]["interval/window_rows"] > 0


def test_a_window_forgets(copy):
    """A window of one iteration holds rows of the iteration before alone."""
    config = adapting(copy, 4, adapt_window=1)
    run = finish(copy, config)
    calibration = load_calibration(copy.workspace, config)
    repair = repair_of(run, 4, calibration, None, settings=config.intervals, audited=set())
    assert set(repair.blended.rows.prompt_id_C[len(calibration.calibration) :]) <= audited(run, 3)[0]
    assert repair.blended.num_recent > 0


def test_a_recalibration_starts_the_repair_anew(copy):
    """After it, the level is the promise again and the window empty: its rows are the calibration set now."""
    config = adapting(copy, 6)
    # Nine prompts must have been audited before a recalibration can serve alpha.
    run = finish(copy, config, recalibrate=4)
    for number, rows in ((4, 0), (5, 0)):
        assert copy.config.intervals.alpha == stored(run, number)["used"]["level"]
        assert rows == stored(run, number)["numbers"]["interval/window_rows"]
    calibration = load_calibration(copy.workspace, config)
    repair = repair_of(run, 6, calibration, None, settings=config.intervals, audited=set())
    assert set(repair.blended.rows.prompt_id_C[len(calibration.calibration) :]) <= audited(run, 5)[0]


def test_without_repair_nothing_is_written(copy):
    """The paper's method leaves no state of ours behind, and the repair's first iteration makes the same intervals."""
    plain = finish(copy, adapting(copy, 2, adapt="none"), "none")
    repaired = finish(copy, adapting(copy, 2), "some")
    for number in (1, 2):
        assert not (plain.iteration(number) / "adaptation.json").exists()
        assert "interval/level" not in json.loads((plain.iteration(number) / "metrics.json").read_text())
    for name in ("policy_intervals.parquet", "audit_intervals.parquet"):
        first, second = (digest_file(run.iteration(1) / name) for run in (plain, repaired))
        assert first == second
    assert stored(repaired, 2)["used"]["level"] == json.loads((repaired.iteration(2) / "metrics.json").read_text()).get(
        "interval/level"
    )


def test_no_prompt_bounds_itself_after_a_recalibration(copy):
    """Intervals of a prompt that is audited again do not change when its own calibration rows get another truth."""
    config = adapting(copy, 5)
    with TrainingSession(copy.workspace, config, run="a") as session:
        for number in session.remaining:
            if number == 5:
                break
            step(session, number, recalibrate=number == 4)
        fresh = session.calibration
        for stage in (session.sample, session.judge_states, session.bound):
            stage(5)
        folder = session.opened.folder.iteration(5)
        judgments = read_judgments(folder / "audit_judgments.parquet")
        again = sorted(set(fresh.calibration.prompt_id_C) & set(judgments.prompt_id_N))
        assert again
        made = read_intervals(folder / "audit_intervals.parquet")
        for prompt_id in again:
            own = np.array([other == prompt_id for other in fresh.calibration.prompt_id_C])
            rows = fresh.calibration
            truth = np.where(own, 1 - rows.truth_C, rows.truth_C)
            score = np.abs(rows.score_C - truth) / rows.scale_C
            changed = replace(fresh, calibration=replace(rows, truth_C=truth, nonconformity_C=score))
            repair = repair_of(session.opened.folder, 5, changed, None, settings=config.intervals, audited=set())
            intervals = bound_states(judgments, changed, repair)
            rows = [i for i, other in enumerate(judgments.prompt_id_N) if other == prompt_id]
            assert made.lower_N[rows].tolist() == pytest.approx(intervals.lower_N[rows].tolist(), nan_ok=True)
            assert made.upper_N[rows].tolist() == pytest.approx(intervals.upper_N[rows].tolist(), nan_ok=True)
        session.cover(5)
        seen = json.loads((folder / "monitor.json").read_text())
        assert set(fresh.calibration.prompt_id_C) <= set(seen["seen"])
        assert seen["verdict"]["num_prompts"] == len(set(seen["seen"]) - set(fresh.calibration.prompt_id_C))


def test_what_a_rule_widened_moves_no_level(copy):
    """Intervals that an overlap rule made vacuous miss nothing at any level: they must not raise the next one."""
    base = adapting(copy, 2)
    rules = {"overlap": {"effective_rows": {"limit": 1e9, "consequence": "widen"}}}
    run = finish(copy, base.model_validate(merge(base.model_dump(), rules)), "wide")
    for number in (1, 2):
        assert copy.config.intervals.alpha == stored(run, number)["next"]["level"]
        assert 0 == stored(run, number)["next"]["num_updates"]
