"""A training session: the resident policy, judge and calibration that all iterations of a run share."""

import json
import logging
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import cached_property
from types import TracebackType
from typing import Self

from rangeline.config import PipelineConfig
from rangeline.conformal.coverage import AlarmState
from rangeline.conformal.intervals import require_calibration_prompts
from rangeline.errors import BusyError, CalibrationError, NoSignalError, NothingKeptError
from rangeline.full_disk import FullDiskTold
from rangeline.holding import hold
from rangeline.lineage import deferred_sync, sync_disks, write_json
from rangeline.policy.supervised import SupervisedRow
from rangeline.records import CoverageReport
from rangeline.stages.adaptation import audited_rows
from rangeline.stages.ahead import sampling_ahead, take_ahead
from rangeline.stages.calibration import Calibration, fresh_calibration, load_calibration, read_truth, source_rows
from rangeline.stages.data import read_pool, read_world
from rangeline.stages.estimator import (
    ChosenEstimator,
    LabelledRows,
    choose_estimator,
    is_open,
    set_estimator,
)
from rangeline.stages.evaluation import reference_probabilities, reference_rows
from rangeline.stages.iteration import Iteration
from rangeline.stages.judge_records import require_same_judge
from rangeline.stages.judging import FrozenJudge, open_judge
from rangeline.stages.known import Known
from rangeline.stages.memory_watch import watch_memory
from rangeline.stages.oracle import observe
from rangeline.stages.policy import open_policy
from rangeline.stages.progress import Progress, silent
from rangeline.stages.reward_plan import plan_rewards, require_domains
from rangeline.stages.rewarding import RewardModels
from rangeline.stages.run import RECENT_ITERATIONS, OpenedRun, open_run
from rangeline.stages.sampling_server import SamplingServer, open_server
from rangeline.stages.sittings import clear_remains, retire, save_stop, write_sitting
from rangeline.stages.tables import read_judgments, write_table
from rangeline.stages.watch import watch
from rangeline.stages.workspace import Workspace
from rangeline.suites.candidate_world import World

_LOGGER = logging.getLogger("rangeline")
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
    BusyError
        On entering, when another process works at the run.
    """

    def __init__(
        self, workspace: Workspace, config: PipelineConfig, *, run: str | None = None, progress: Progress = silent
    ) -> None:
        self.workspace, self.config, self.progress = workspace, config, progress
        self.timings: dict[str, float] = {}
        """Seconds of the current iteration's steps."""
        self.update_parts: dict[str, float] = {}
        """Seconds of the parts of its update."""
        self._lap_started = time.monotonic()
        self._known = Known()
        self._latest: Iteration | None = None
        self.plan = plan_rewards(config)
        self._calibration: Calibration | None = None
        if self.plan.needs_judge:
            self._calibration = load_calibration(workspace, config)
            # Rollouts of one prompt depend on each other: it is prompts that must be enough.
            require_calibration_prompts(len(set(self.calibration.calibration.prompt_id_C)), config.intervals.alpha)
            self.labelled = LabelledRows(
                source=source_rows(workspace, self.calibration), calibration=self.calibration.calibration
            )
        # Says at once where no prompt could be scored.
        for pool in (self.plan.pool, *(["warmup"] if config.train.labelled_prompts else [])):
            self.plan.usable(self._known.pool(workspace, pool), pool)
        if config.reward.domains or config.reward.domain_weights:
            pools = (self._known.pool(workspace, pool) for pool in ("policy", "warmup"))
            require_domains(config.reward, (row for rows in pools for row in rows))
        self.opened: OpenedRun = open_run(workspace, config, run)
        self.pinned: frozenset[str] = frozenset()
        """Names of checkpoints that somebody refers to: retention leaves them alone."""
        if self.plan.needs_judge:
            self._restore_calibration()
        self._held = ExitStack()

    @property
    def calibration(self) -> Calibration:
        """What the intervals come from.

        Raises
        ------
        CalibrationError
            When no reward source of the run asks a judge.
        """
        if self._calibration is None:
            msg = f"Calibration must be there to bound rewards; got reward source '{self.plan.source}', which has none."
            raise CalibrationError(msg)
        return self._calibration

    def __enter__(self) -> Self:
        """Take the run for this process alone, load policy and judge, and restore the last complete checkpoint."""
        with ExitStack() as undo:
            undo.callback(self._held.close)
            self._hold_run()
            self._held.enter_context(watch_memory(_LOGGER.warning))
            self.worker = open_policy(self.workspace, self.config)
            self._server: SamplingServer | None = None
            # What fails from here on leaves no process behind.
            undo.callback(self._close)
            self._open()
            undo.pop_all()
        self._lap_started = time.monotonic()
        return self

    def _hold_run(self) -> None:
        """Hold the run's lock until the session ends, and drop what interrupted sittings left.

        Raises
        ------
        BusyError
            When another process works at the run, or did so while this one opened it.
        """
        run = self.opened.folder
        self._held.enter_context(hold(self.workspace.locks / f"run-{run.name}.lock", f"Run '{run.name}'"))
        names = (path.name for path in (run.root / "checkpoints").glob("[0-9]*"))
        newer = [name for name in names if name.isdigit() and int(name) > self.opened.done]
        if len(newer) > len(self.opened.passed_over):
            msg = (
                f"Run '{run.name}' must stand still while it is opened; got checkpoint {max(newer)} of another process "
                f"('{run.root}'). Give the same command again."
            )
            raise BusyError(msg)
        clear_remains(self.opened, self.config.train.iterations)

    def _open(self) -> None:
        if self.opened.done:
            self.worker.restore(self.opened.folder.checkpoint(self.opened.done))
            # A sitting that was killed before it pruned left one checkpoint too many.
            retire(self.opened.folder, self.opened.done, self.pinned)
        if self.config.rollout.engine == "vllm":
            self._server = open_server(
                self.config.rollout,
                self.opened.folder.root,
                self.worker,
                model=self.workspace.warmup / "policy",
                progress=self.progress,
            )
        if self.remaining:
            write_sitting(self.workspace, self.opened, self.config.train.iterations)
        scoring = self._server if self.config.rollout.scoring == "server" else None
        self.models = RewardModels(self.workspace, self.config, self.worker, server=scoring)
        if self.plan.needs_judge:
            trust = self.config.policy.trust_remote_code
            self.judge = open_judge(self.workspace, self.config.judge, trust_remote_code=trust)
            if self.remaining:
                self._require_same_judge("start")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let the models go, and end a server of the session's own."""
        self._close()

    def _close(self) -> None:
        if self._server is not None:
            self._server.close()
        try:
            self.worker.close()
        finally:
            self._held.close()

    @property
    def remaining(self) -> range:
        """Numbers of the iterations still to do."""
        return range(self.opened.done + 1, self.config.train.iterations + 1)

    def iteration(self, number: int) -> Iteration:
        """Return the steps of one iteration."""
        if self._latest is None or self._latest.number != number:
            self._latest = Iteration(self.workspace, self.config, self.opened.folder, number, self._known)
        return self._latest

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Add the seconds of a step to `timings`.

        What lies between two checkpoints is made again after a failure, so its files need not outlast one before the
        next checkpoint: they are synced together then.
        """
        start = time.monotonic()
        lasting = self.config.train.checkpoint_every == 1
        run = self.opened.folder
        told = FullDiskTold(
            run.root,
            f"run '{run.name}' ('{name.removesuffix('_s')}')",
            "Every complete checkpoint is as it was: make room, and the same command goes on from the last one.",
        )
        try:
            with told, nullcontext() if lasting else deferred_sync():
                yield
        finally:
            self.timings[name] = self.timings.get(name, 0.0) + time.monotonic() - start

    def lap(self) -> float:
        """Return the seconds since the last call, or since the models were loaded."""
        now = time.monotonic()
        passed, self._lap_started = now - self._lap_started, now
        return passed

    def sample(self, number: int) -> None:
        """Step 1: rollouts of every share."""
        with self.timed("generate_s"):
            iteration = self.iteration(number)
            if not (self.config.rollout.staleness and take_ahead(iteration, self.worker.policy_version)):
                iteration.sample(self.worker, self.progress)

    def judge_states(self, number: int) -> None:
        """Step 2: judgment states."""
        with self.timed("judge_s"):
            self.iteration(number).judge(self.judge, self.calibration, self.progress)
            if number == self.config.train.iterations:
                # Before the last update, so that a judge that changed on the way has no part in it.
                self._require_same_judge("end")

    def _require_same_judge(self, when: str) -> None:
        if isinstance(self.judge, FrozenJudge):
            place = f"at the {when} of run '{self.opened.folder.name}'"
            folder, limits = self.workspace.calibration, self.config.judge.limits
            require_same_judge(folder, self.judge.client, limits, place)

    def bound(self, number: int) -> None:
        """Step 3: density ratio and intervals where a judge is asked, and the rewards of every source."""
        with self.timed("bound_s"):
            iteration = self.iteration(number)
            if self.plan.needs_judge:
                iteration.refit_ratio(self.calibration)
                iteration.bound(self.calibration, models=self.models, progress=self.progress)
            else:
                iteration.reward(self.models, progress=self.progress)
                iteration.check_audit()

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
        self._calibration = fresh
        self.iteration(number).bound(fresh, shares=("policy",), models=self.models, progress=self.progress)
        return len(set(fresh.calibration.prompt_id_C))

    def _fresh(self, number: int) -> Calibration:
        judged = []
        for earlier in range(max(1, number - _AUDITED_ITERATIONS + 1), number + 1):
            folder = self.iteration(earlier).folder
            judgments = read_judgments(folder / "audit_judgments.parquet")
            judged.append((judgments, read_truth(folder / "audit_coverage.parquet")))
        return fresh_calibration(self.calibration, judged, self.config.intervals.alpha)

    def _restore_calibration(self) -> None:
        """Go back to the newest recalibration of a resumed run."""
        for number in range(self.opened.done, 0, -1):
            if (self.iteration(number).folder / "recalibration.parquet").is_file():
                self._calibration = self._fresh(number)
                break

    def update(self, number: int) -> None:
        """Step 5: advantages, policy update, measurements, checkpoint where one is due, manifest.

        Raises
        ------
        NoSignalError
            When every advantage was zero for too many iterations in a row.
        """
        with self.timed("update_s"):
            iteration = self.iteration(number)
            silent = 0 if iteration.credit(self._choose(number)) else 1 + self._silent_before(number)
            if silent >= self.config.train.max_silent_iterations:
                if self._nothing_kept(number):
                    msg = (
                        f"The reward filter must keep a prompt within {silent} iterations; got none up to iteration "
                        f"{number} of run '{self.opened.folder.name}', refills included. Lower its beta, allow more "
                        "refills, or take prompts whose rewards differ."
                    )
                    raise NothingKeptError(msg)
                msg = (
                    f"An advantage must differ from zero within {silent} iterations; got none up to iteration {number} "
                    f"of run '{self.opened.folder.name}'. Take harder or easier prompts, a larger group, a higher "
                    "sampling.max_tokens if completions are cut off, or another estimator."
                )
                raise NoSignalError(msg)
            with self._sampling_ahead(number):
                iteration.update(self.worker, self.progress)
            self.update_parts = self.worker.take_part_seconds()
        with self.timed("measure_s"):
            self._measure(iteration)
        with self.timed("save_s"):
            iteration.close(self.worker)
            if iteration.is_saved:
                retire(self.opened.folder, number, self.pinned)
            if iteration.is_saved and self.config.train.checkpoint_every > 1:
                sync_disks()

    def _sampling_ahead(self, number: int) -> AbstractContextManager[None]:
        """Draw the next iteration's rollouts meanwhile, where the settings say so and there is a next one."""
        if self._server is None or not self.config.rollout.staleness or number == self.config.train.iterations:
            return nullcontext()
        following = Iteration(self.workspace, self.config, self.opened.folder, number + 1, self._known)
        return sampling_ahead(self._server, following, seed=self.config.seed, tokenizer=self.worker.tokenizer)

    def stop(self, number: int) -> None:
        """Make the last iteration one that the run can go on from, where no checkpoint was due."""
        with self.timed("save_s"):
            if not self.iteration(number).is_saved:
                save_stop(self.iteration(number), self.worker)

    def _measure(self, iteration: Iteration) -> None:
        """Look at what was done, after the update, so that nothing seen here can reach it."""
        if self._world is not None:
            observe(self._world, iteration)
        every = self.config.train.evaluate_every
        if every and iteration.number % every == 0:
            value_P = reference_probabilities(self.worker.model, self._evaluation_rows, self.config)
            write_json(iteration.folder / "evaluation.json", {"evaluation/accuracy": float(value_P.mean())})

    @cached_property
    def _world(self) -> World | None:
        return read_world(self.workspace) if self.workspace.world.is_file() else None

    @cached_property
    def _evaluation_rows(self) -> list[SupervisedRow]:
        rows = read_pool(self.workspace, "evaluation")[: self.config.evaluate.max_prompts]
        return reference_rows(self.worker.tokenizer, rows, self.config)

    def _nothing_kept(self, number: int) -> bool:
        facts = json.loads((self.iteration(number).folder / "reward.json").read_text(encoding="utf-8"))
        return facts["reward/kept_share"] == 0

    def _choose(self, number: int) -> ChosenEstimator:
        """Settle what the settings leave open, on audits before this iteration and the first policy's rollouts."""
        settings = self.config.advantages
        if not (self.plan.bounds_rewards and is_open(settings)):
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
        while number - count > 1 and self._was_silent(number - count - 1):
            count += 1
        return count

    def _was_silent(self, number: int) -> bool:
        """Tell whether an iteration had no advantage and no text to learn: its update was not made."""
        text = (self.iteration(number).folder / "update.json").read_text(encoding="utf-8")
        return bool(json.loads(text).get("skipped"))
