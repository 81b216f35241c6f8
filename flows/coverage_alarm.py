"""What a closed coverage gate leads to: what the settings say, or what a person answers in the form of the pause."""

from typing import Literal

from prefect.flow_runs import pause_flow_run
from prefect.input import RunInput
from prefect.runtime import flow_run
from pydantic import Field

from rangeline.errors import CoverageAlarmError
from tasks.calibration import keep_answer
from tasks.lineage import Session
from tasks.reporting import logger
from tasks.validation import ExpectationOutcome

Choice = Literal["recalibrate", "continue", "stop"]

_PAUSE_S = 24 * 3600
_POLL_S = 5
_FORM = """## Coverage alarm at iteration {number} of run {run}

{reasons}

Page with every expectation: `{page}`

The policy was **not** updated yet. Choose:

- **recalibrate**: take the audited rollouts of this iteration as fresh labels, bound its rewards anew, and go on
- **continue**: update on these intervals as they are; the run stays marked, and is not promoted
- **stop**: end the run before this update; the same command resumes before this iteration
"""


class AlarmAnswer(RunInput):
    """What a person decides while the run is paused."""

    choice: Choice = Field(description="What the run does now; nothing is chosen beforehand")
    reason: str = Field(
        "", max_length=500, description="Why; kept with the iteration, in its manifest and in the log of the run"
    )


def answer_alarm(session: Session, number: int, outcome: ExpectationOutcome, on_alarm: str) -> str:
    """Return what to do now that the gate is closed: `continue` or `recalibrate`; a person is asked where so set.

    Raises
    ------
    CoverageAlarmError
        When the settings or the person say stop.
    """
    reasons, page, why = "; ".join(outcome.failed), outcome.page_path, ""
    chosen = on_alarm
    if on_alarm == "pause":
        logger.warning("coverage alarm at iteration %d: %s", number, reasons)
        answer = ask_person(session.opened.folder.name, number, outcome)
        chosen, why = answer.choice, answer.reason.strip()
        keep_answer(session, number, chosen, why)
        logger.warning("iteration %d: a person chose to %s%s", number, chosen, f": {why}" if why else "")
    if chosen == "stop":
        said = f" A person chose to stop{f': {why}' if why else ''}." if on_alarm == "pause" else ""
        msg = (
            f"Coverage must stay in its band; iteration {number} failed: {reasons} ({page}).{said} Calibrate anew, or "
            "go on with train.on_alarm=continue: the same command resumes before this iteration."
        )
        raise CoverageAlarmError(msg)
    if on_alarm != "pause":
        logger.warning("coverage alarm at iteration %d: %s", number, reasons)
    return chosen


def ask_person(run: str, number: int, outcome: ExpectationOutcome) -> AlarmAnswer:
    """Pause the flow run, for a day at most, until somebody resumes it in the Prefect UI with the form filled in."""
    logger.warning("paused for a person: press Resume on %s, or cancel it (%s)", flow_run.ui_url, outcome.page_path)
    text = _FORM.format(number=number, run=run, reasons=outcome.markdown, page=outcome.page_path)
    # A retried flow run asks again: Prefect would give it the answer of the time before, and stop it once more.
    key = f"coverage-{number}-{flow_run.run_count}"
    form = AlarmAnswer.with_initial_data(description=text)
    return pause_flow_run(wait_for_input=form, timeout=_PAUSE_S, poll_interval=_POLL_S, key=key)
