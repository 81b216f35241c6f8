"""A training session: the resident policy, judge and calibration that all iterations of a run share."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from rangeline.config import PipelineConfig
from rangeline.conformal.coverage import AlarmState
from rangeline.conformal.intervals import require_calibration_rows
from rangeline.errors import NoSignalError
from rangeline.policy.checkpoint import prune
from rangeline.records import CoverageReport
from rangeline.stages.adaptation import audited_rows
from rangeline.stages.calibration import Calibration, fresh_calibration, load_calibration, read_truth, source_rows
from rangeline.stages.estimator import (
    RECENT_ITERATIONS,
    ChosenEstimator,
    LabelledRows,
    choose_estimator,
    is_open,
    set_estimator,
)
from rangeline.stages.iteration import Iteration
from rangeline.stages.judging import open_judge
from rangeline.stages.progress import Progress, silent
from rangeline.stages.run import OpenedRun, open_run
from rangeline.stages.tables import read_judgments, write_table
from rangeline.stages.warmup import load_worker
from rangeline.stages.watch import watch
from rangeline.stages.workspace import Workspace

_AUDITED_ITERATIONS = 3
"""Iterations whose audited rollouts make a fresh calibration set: older ones come from too different a policy."""


class TrainingSession:
    """Opens a run, holds its models, and does the steps of each iteration; use it as a context manager.

    Parameters
    ----------
    workspace, config
        Where and how.
    run
        Name of the run; None makes it from the settings.
    progress
        Told of every step.

    Raises
    ------
    CalibrationError
        When calibration has not been made or has too few rows for alpha.
    ConfigError
        When the run was started with other settings.
    """

    def __init__(
        self, workspace: Workspace, config: PipelineConfig, *, run: str | None = None, progress: Progress = silent
    ) -> None:
        self.workspace, self.config, self.progress = workspace, config, progress
        self.timings: dict[str, float] = {}
        self.calibration = load_calibration(workspace, config)
        # Rollouts of one prompt depend on each other: it is prompts that must be enough.
        require_calibration_rows(len(set(self.calibration.calibration.prompt_id_C)), config.intervals.alpha)
        self.labelled = LabelledRows(
            source=source_rows(workspace, self.calibration), calibration=self.calibration.calibration
        )
        self.opened: OpenedRun = open_run(workspace, config, run)
        self._restore_calibration()

    def __enter__(self) -> Self:
        """Load policy and judge, and restore the last complete checkpoint."""
        self.worker = load_worker(self.config, str(self.workspace.warmup / "policy"))
        if self.opened.done:
            self.worker.restore(self.opened.folder.checkpoint(self.opened.done))
            # A sitting that was killed before it pruned left one checkpoint too many.
            prune(self.opened.folder.root / "checkpoints", keep_last=self.config.train.keep_checkpoints)
        trust = self.config.policy.trust_remote_code
        self.judge = open_judge(self.workspace, self.config.judge, trust_remote_code=trust)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let the models go."""
        self.worker.close()

    @property
    def remaining(self) -> range:
        """Numbers of the iterations still to do."""
        return range(self.opened.done + 1, self.config.train.iterations + 1)

    def iteration(self, number: int) -> Iteration:
        """Return the steps of one iteration."""
        return Iteration(self.workspace, self.config, self.opened.folder, number)

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Add the seconds of a step to `timings`."""
        start = time.monotonic()
        try:
            yield
        finally:
            self.timings[name] = self.timings.get(name, 0.0) + time.monotonic() - start

    def sample(self, number: int) -> None:
        """Step 1: rollouts of every share."""
        with self.timed("generate_s"):
            self.iteration(number).sample(self.worker, self.progress)

    def judge_states(self, number: int) -> None:
        """Step 2: judgment states."""
        with self.timed("judge_s"):
            self.iteration(number).judge(self.judge, self.calibration, self.progress)

    def bound(self, number: int) -> None:
        """Step 3: density ratio and reward intervals."""
        with self.timed("bound_s"):
            iteration = self.iteration(number)
            iteration.refit_ratio(self.calibration)
            iteration.bound(self.calibration)

    def cover(self, number: int) -> tuple[CoverageReport, AlarmState]:
        """Step 4: coverage on the audit share, and what the whole run says of it."""
        with self.timed("bound_s"):
            iteration = self.iteration(number)
            report = iteration.cover()
            return report, watch(iteration, self.calibration, report)

    def recalibrate(self, number: int) -> int:
        """Take the latest audited rollouts as the calibration set, from this iteration on; return its prompts.

        The iteration's own coverage was measured before, with the old set; its policy rewards are bounded anew.

        Raises
        ------
        CalibrationError
            When the audited prompts are too few for alpha.
        """
        fresh = self._fresh(number)
        columns = {"prompt_id": list(fresh.calibration.prompt_id_C), "truth": fresh.calibration.truth_C}
        folder = self.iteration(number).folder
        write_table(folder / "recalibration.parquet", columns)
        self.calibration = fresh
        self.iteration(number).bound(fresh, shares=("policy",))
        return len(set(fresh.calibration.prompt_id_C))

    def _fresh(self, number: int) -> Calibration:
        judged = []
        for earlier in range(max(1, number - _AUDITED_ITERATIONS + 1), number + 1):
            folder = self.iteration(earlier).folder
            judgments = read_judgments(folder / "audit_judgments.parquet")
            judged.append((judgments, read_truth(folder / "audit_coverage.parquet")))
        return fresh_calibration(self.calibration, judged, self.config.intervals.alpha)

    def _restore_calibration(self) -> None:
        """Go back to the newest recalibration of a resumed run; what an interrupted iteration left is no longer so."""
        for number in range(self.opened.done, 0, -1):
            if (self.iteration(number).folder / "recalibration.parquet").is_file():
                self.calibration = self._fresh(number)
                break
        (self.iteration(self.opened.done + 1).folder / "recalibration.parquet").unlink(missing_ok=True)

    def update(self, number: int) -> None:
        """Step 5: advantages, policy update, checkpoint, manifest.

        Raises
        ------
        NoSignalError
            When every advantage was zero for too many iterations in a row.
        """
        with self.timed("update_s"):
            iteration = self.iteration(number)
            silent = 0 if iteration.credit(self._choose(number)) else 1 + self._silent_before(number)
            if silent >= self.config.train.max_silent_iterations:
                msg = (
                    f"An advantage must differ from zero within {silent} iterations; got none up to iteration {number} "
                    f"of run '{self.opened.folder.name}'. Take harder or easier prompts, a larger group, a higher "
                    "sampling.max_tokens if completions are cut off, or another estimator."
                )
                raise NoSignalError(msg)
            iteration.update(self.worker, self.progress)

    def _choose(self, number: int) -> ChosenEstimator:
        """Settle what the settings leave open, on audits before this iteration and the first policy's rollouts."""
        settings = self.config.advantages
        if not is_open(settings):
            return set_estimator(settings)
        recent = range(max(1, number - RECENT_ITERATIONS), number)
        return choose_estimator(
            settings,
            self.labelled,
            audited_rows(self.opened.folder, recent, self.calibration),
            repair=self.iteration(number).repair(self.calibration),
            alpha=self.config.intervals.alpha,
        )

    def _silent_before(self, number: int) -> int:
        """Count the iterations right before this one that had no advantage."""
        count = 0
        while number - count > 1 and self.iteration(number - count - 1).metrics()["advantage/active_share"] == 0:
            count += 1
        return count
