"""Overlap rules in an iteration: what is written down, what is widened, and what the run says of it."""

import json
from dataclasses import replace

import numpy as np
import pytest

from rangeline.config import merge
from rangeline.errors import ConfigError
from rangeline.stages.calibration import load_calibration
from rangeline.stages.iteration import Iteration
from rangeline.stages.overlap import read_findings
from rangeline.stages.run import open_run
from rangeline.stages.session import TrainingSession
from rangeline.stages.tables import read_intervals, read_judgments
from rangeline.stages.watch import watch


def _with(trained, **overlap):
    return trained.config.model_validate(merge(trained.config.model_dump(), {"overlap": overlap}))


def _bounded(copy, **overlap):
    """Bound iteration 2 again under other overlap rules; return the iteration and its calibration."""
    iteration = Iteration(copy.workspace, _with(copy, **overlap), copy.run, 2)
    calibration = load_calibration(copy.workspace, copy.config)
    iteration.bound(calibration)
    return iteration, calibration


BROKEN = {"effective_rows": {"limit": 1e9, "consequence": "widen"}}
"""No calibration set has that many rows."""


def test_every_rule_is_written_down_with_value_limit_and_consequence(copy):
    """`overlap.json` holds a finding a rule, and the manifest names the file."""
    findings = read_findings(copy.run.iteration(2))
    overlap = json.loads((copy.run.iteration(2) / "ratio.json").read_text())["overlap"]
    by_name = {finding.diagnostic: finding for finding in findings}
    assert set(type(copy.config.overlap).model_fields) == set(by_name)
    for name in set(by_name) & set(overlap):
        assert overlap[name] == by_name[name].value
    assert overlap["ess"] == by_name["effective_rows"].value
    assert "overlap.json" in (copy.run.iteration(2) / "manifest.json").read_text()


@pytest.mark.parametrize("share", ["policy", "audit"])
def test_widen_gives_the_whole_support_and_never_takes_coverage(copy, share):
    """Every interval holds the one without the rule; those concerned are all of [0, 1] and flagged."""
    path = copy.run.iteration(2) / f"{share}_intervals.parquet"
    before = read_intervals(path)
    _bounded(copy, **BROKEN)
    after = read_intervals(path)
    valid = ~before.missing_N
    assert (after.lower_N[valid] == 0).all()
    assert (after.upper_N[valid] == 1).all()
    assert after.unbounded_N[valid].all()
    assert before.missing_N.tolist() == after.missing_N.tolist()
    stored = json.loads((copy.run.iteration(2) / "overlap.json").read_text())
    assert int(valid.sum()) == stored["widened"][share]


def test_widen_for_unseen_states_leaves_the_others_alone(copy):
    """Only rollouts in states that the source never showed are widened."""
    path = copy.run.iteration(2) / "policy_intervals.parquet"
    before, levels = read_intervals(path), read_judgments(copy.run.iteration(2) / "policy_judgments.parquet").levels_NK
    calibration = load_calibration(copy.workspace, copy.config)
    # Of the source's states, the commonest is taken away: rollouts in it are now in a state never seen.
    states, counts = np.unique(levels[~before.missing_N], axis=0, return_counts=True)
    gone = states[counts.argmax()]
    source = calibration.source
    hidden = replace(source, missing_N=source.missing_N | (source.levels_NK == gone).all(axis=1))
    ratio = json.loads((copy.run.iteration(2) / "ratio.json").read_text())
    ratio["overlap"]["unseen_target_share"] = 0.9
    (copy.run.iteration(2) / "ratio.json").write_text(json.dumps(ratio))
    rules = {"unseen_target_share": {"consequence": "widen"}}
    iteration = Iteration(copy.workspace, _with(copy, **rules), copy.run, 2)
    iteration.bound(replace(calibration, source=hidden))
    after, valid = read_intervals(path), ~before.missing_N
    concerned = (levels == gone).all(axis=1) & valid
    assert 0 < concerned.sum()
    assert after.unbounded_N[concerned].all()
    seen = {tuple(state) for state in hidden.levels_NK[~hidden.missing_N].tolist()}
    others = valid & np.array([tuple(state) in seen for state in levels.tolist()])
    assert before.lower_N[others].tolist() == after.lower_N[others].tolist()
    assert before.upper_N[others].tolist() == after.upper_N[others].tolist()


@pytest.mark.parametrize(
    ("consequence", "no_overlap"), [("warn", False), ("widen", False), ("recalibrate", True), ("stop", True)]
)
def test_no_overlap_is_what_the_rules_say(copy, consequence, no_overlap):
    """The alarm state is `no_overlap` exactly where a broken rule says recalibrate or stop."""
    iteration, calibration = _bounded(copy, effective_rows={"limit": 1e9, "consequence": consequence})
    state = watch(iteration, calibration, iteration.cover())
    assert no_overlap is (state == "no_overlap")


def test_fresh_labels_have_no_overlap_to_break(copy):
    """After a recalibration what led to it stays written down; the next iteration uses no ratio, and says so."""
    config = _with(copy, effective_rows={"limit": 1e9, "consequence": "recalibrate"})
    config = config.model_copy(update={"train": config.train.model_copy(update={"iterations": 4})})
    with TrainingSession(copy.workspace, config, run="r") as session:
        for number in (3, 4):
            for step in (session.sample, session.judge_states, session.bound):
                step(number)
            _, state = session.cover(number)
            if number == 3:
                session.recalibrate(number)
                assert "no_overlap" == state
            session.update(number)
    assert any(finding.is_critical for finding in read_findings(copy.run.iteration(3)))
    assert () == read_findings(copy.run.iteration(4))
    assert "no_overlap" != state


def test_a_run_goes_on_with_other_consequences_but_not_with_other_widening(copy):
    """Warn, recalibrate and stop say when a run goes on; widening changes what it computes."""
    assert open_run(copy.workspace, _with(copy, ess_share={"limit": 0.3, "consequence": "stop"}), "r").done == 2
    with pytest.raises(ConfigError, match="was started with other settings"):
        open_run(copy.workspace, _with(copy, **BROKEN), "r")
