"""How far a flow is: a bar on a terminal, plain lines elsewhere, a progress artifact in the Prefect UI."""

import logging
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from prefect.artifacts import (
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)
from prefect.context import FlowRunContext
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

logger = logging.getLogger("rangeline")
console = Console(stderr=True)

_LINE_EVERY_S = 20.0
_ARTIFACT_EVERY_S = 2.0
_TOLD = ("Running stage", "Stage '", "note: ")
"""Lines of DVC and notes of a stage that a person wants to read; the rest is advice on git, and an error is told where
it ends the flow."""
_STAGE_LINE = re.compile(r"progress (\S+) (\d+) (\d+)$")


class RateColumn(ProgressColumn):
    """Shows how many steps a second are done of late."""

    def render(self, task: Task) -> Text:
        """Return the rate, or nothing before there is one."""
        return Text("" if task.speed is None else f"{task.speed:.2f}/s")


class FlowProgress:
    """Shows the steps of one flow; make it with `flow_progress`."""

    def __init__(self, key: str, bar: Progress | None) -> None:
        self._bar = bar
        self._tasks: dict[str, Any] = {}
        self._said: dict[str, tuple[float, int]] = {}
        self._artifact: UUID | None = None
        self._sent = 0.0
        if FlowRunContext.get() is not None:
            created = create_progress_artifact(progress=0.0, key=artifact_key(key), description=f"Progress of {key}")
            self._artifact = created if isinstance(created, UUID) else None

    def __call__(self, label: str, done: int, total: int) -> None:
        """Show one step of a part of the flow."""
        if self._bar is not None:
            if label not in self._tasks:
                self._tasks[label] = self._bar.add_task(label, total=total)
            self._bar.update(self._tasks[label], completed=done, total=total)
            if done >= total:
                self._bar.remove_task(self._tasks.pop(label))
        now = time.monotonic()
        said, before = self._said.get(label, (now - _LINE_EVERY_S, done))
        if self._bar is None and (done == total or now - said >= _LINE_EVERY_S):
            self._said[label] = now, done
            # What came all at once has no rate.
            rate = f", {(done - before) / (now - said):.2f} a second" if done > before and now - said >= 1 else ""
            logger.info("%s: %d of %d%s", label, done, total, rate)

    def line(self, text: str) -> None:
        """Take a line of a stage's output: its progress becomes a step, other lines are told as they are."""
        match = _STAGE_LINE.match(text.strip())
        if match:
            self(match[1].replace("_", " "), int(match[2]), int(match[3]))
        elif text.startswith(_TOLD):
            logger.info("%s", text.rstrip())
        else:
            logger.debug("%s", text.rstrip())

    def overall(self, share: float) -> None:
        """Move the flow's progress artifact to a share of the whole."""
        now = time.monotonic()
        if self._artifact is not None and (share >= 1 or now - self._sent >= _ARTIFACT_EVERY_S):
            self._sent = now
            update_progress_artifact(artifact_id=self._artifact, progress=100.0 * min(max(share, 0.0), 1.0))


@contextmanager
def flow_progress(key: str) -> Iterator[FlowProgress]:
    """Show the progress of a flow while the block runs."""
    if logger.level == logging.NOTSET:
        # Prefect hands its handlers to this logger, but not its level.
        logger.setLevel(logging.INFO)
    if not sys.stderr.isatty():
        progress = FlowProgress(key, None)
        yield progress
        progress.overall(1.0)
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), RateColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as bar:
        progress = FlowProgress(key, bar)
        yield progress
        progress.overall(1.0)


def artifact_key(text: str) -> str:
    """Return a key that Prefect accepts: lower-case letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def show_table(key: str, rows: Sequence[Mapping[str, Any]], description: str) -> None:
    """Leave a table in the Prefect UI."""
    if FlowRunContext.get() is not None:
        create_table_artifact(table=[dict(row) for row in rows], key=artifact_key(key), description=description)


def show_markdown(key: str, text: str, description: str) -> None:
    """Leave a page in the Prefect UI."""
    if FlowRunContext.get() is not None:
        create_markdown_artifact(markdown=text, key=artifact_key(key), description=description)
