"""Calibration tasks of an iteration: judge states, bound rewards, report coverage, and hold the gate."""

import json
from collections.abc import Sequence
from dataclasses import asdict

from prefect import task
from prefect.cache_policies import NO_CACHE

from rangeline.conformal.coverage import AlarmState
from rangeline.records import CoverageReport, OverlapFinding
from rangeline.stages.overlap import read_findings
from rangeline.stages.quarantine import quarantined, read_silence
from rangeline.stages.session import TrainingSession
from rangeline.stages.tables import read_table
from tasks.automations import tell_alarm
from tasks.expectations import CoverageThresholds, check_coverage
from tasks.reporting import logger, show_markdown, show_table
from tasks.validation import ExpectationOutcome


@task(name="judge states", cache_policy=NO_CACHE, retries=1)
def judge_states(session: TrainingSession, number: int) -> None:
    """Map the iteration's rollouts to judgment states, and name the prompts on which the judge fails."""
    session.judge_states(number)
    silence = read_silence(session.iteration(number).folder)
    if silence:
        held = quarantined(silence)
        logger.warning(
            "judge: no answer for any rollout of %d prompts, such as '%s'; their rewards are missing, and %d of them "
            "are in quarantine: not asked about any more",
            len(silence),
            min(silence, key=lambda name: (name not in held, name)),
            len(held),
        )


@task(name="bound rewards", cache_policy=NO_CACHE)
def bound_rewards(session: TrainingSession, number: int) -> None:
    """Refit the density ratio to the moving policy and give every rollout its interval."""
    session.bound(number)


@task(name="score rewards", cache_policy=NO_CACHE)
def score_rewards(session: TrainingSession, number: int) -> None:
    """Ask the reward sources, none of which needs the judge, for the policy share's rewards."""
    session.bound(number)


@task(name="report coverage", cache_policy=NO_CACHE)
def report_coverage(session: TrainingSession, number: int) -> tuple[CoverageReport, AlarmState]:
    """Measure coverage on the audit share, and take it into the evidence of the whole run."""
    return session.cover(number)


@task(name="recalibrate", cache_policy=NO_CACHE)
def recalibrate(session: TrainingSession, number: int) -> None:
    """Take the latest audited rollouts as the calibration set, and bound the policy's rewards anew."""
    prompts = session.recalibrate(number)
    logger.warning("iteration %d: recalibrated on the rollouts of %d audited prompts", number, prompts)


def keep_answer(session: TrainingSession, number: int, choice: str, reason: str) -> None:
    """Keep what a person decided about a closed gate beside what the gate said."""
    session.iteration(number).write_answer(choice, reason)


@task(name="hold coverage gate", cache_policy=NO_CACHE)
def hold_gate(session: TrainingSession, number: int, report: CoverageReport, state: AlarmState) -> ExpectationOutcome:
    """Hold the iteration's intervals against the coverage expectations, and show the result."""
    folder = session.iteration(number).folder
    gate = session.config.coverage
    thresholds = CoverageThresholds(
        min_rows=gate.min_rows,
        min_prompts=gate.min_prompts,
        max_mean_width=gate.max_mean_width,
        max_unbounded_share=gate.max_unbounded_share,
        max_missing_share=gate.max_missing_share,
    )
    rows = read_table(folder / "audit_coverage.parquet").to_pydict()
    overlap = read_findings(folder)
    with session.timed("gate_s"):
        outcome = check_coverage(
            rows, report, state, thresholds=thresholds, overlap=overlap, output=folder / "expectations"
        )
    session.iteration(number).write_gate(success=outcome.success, failed=outcome.failed)
    if not outcome.success:
        tell_alarm(session.opened.folder.name, number, outcome.failed, str(outcome.page_path))
    show_table(
        f"coverage-{session.opened.folder.name}",
        [{**asdict(report), "alarm_state": state}],
        f"Coverage at iteration {number}",
    )
    _show_overlap(session, number, overlap)
    for warning in outcome.warned:
        logger.warning("iteration %d: %s", number, warning)
    show_markdown(
        f"coverage-gate-{session.opened.folder.name}",
        f"## Iteration {number}: {state.replace('_', ' ')}\n\n{outcome.markdown}\n\n"
        f"Page: `{outcome.page_path}`  \nData Docs: `{outcome.docs_path}`  \nResult: `{outcome.result_path}`\n",
        "Coverage gate",
    )
    return outcome


def _show_overlap(session: TrainingSession, number: int, overlap: Sequence[OverlapFinding]) -> None:
    rows = [
        {
            "diagnostic": finding.diagnostic,
            "value": finding.value,
            "wanted": finding.words,
            "consequence": finding.consequence,
            "broken": finding.is_broken,
            "next step": finding.next_step if finding.is_broken else "",
        }
        for finding in overlap
    ]
    show_table(f"overlap-{session.opened.folder.name}", rows, f"Overlap of source and target at iteration {number}")


def broken_overlap(session: TrainingSession, number: int, consequence: str) -> tuple[str, ...]:
    """Return a sentence for each overlap rule of an iteration that is broken and has this consequence."""
    findings = read_findings(session.iteration(number).folder)
    return tuple(item.sentence for item in findings if item.is_broken and item.consequence == consequence)


def gates_held(session: TrainingSession) -> bool:
    """Return whether the coverage gate held in every iteration that earlier sittings of the run completed.

    A run whose reward sources ask no judge has no gate, and nothing that could have failed.
    """
    if not session.plan.needs_judge:
        return True
    paths = [session.iteration(number).folder / "gate.json" for number in range(1, session.opened.done + 1)]
    return all(json.loads(path.read_text(encoding="utf-8"))["success"] is True for path in paths)
