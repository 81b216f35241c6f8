"""Worker processes that do the jobs of a comparison.

Each worker does one job after another, with one thread. A job that fails, or whose process is killed, is named and
sinks no other. Workers end when this process ends, however it ends.
"""

import gc
import multiprocessing
import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Self

from rangeline.errors import RangelineError
from rangeline.orphans import watch_parent
from rangeline.stages.comparison_jobs import Job, prepare
from rangeline.stages.comparison_runs import Looks
from rangeline.stages.workspace import open_workspace

_MOVE_EVERY_S = 2.0
_TELL_EVERY_S = 20.0
_LAST_LINES = 3
_GARBAGE = 50_000
"""New objects between two looks for garbage: small tables make and free many, and few of them in circles."""


def work(connection: Connection, log: Path, looks: Looks) -> None:
    """Do the jobs that come over a connection until it closes; the entry point of a worker process."""
    watch_parent()
    # What a library prints, and the traceback of a failure nobody foresaw, belong in this worker's own log.
    with log.open("ab") as handle:
        os.dup2(handle.fileno(), 1)
        os.dup2(handle.fileno(), 2)
    from rangeline.stages.comparing import run_method

    gc.set_threshold(_GARBAGE)
    while True:
        try:
            job: Job = connection.recv()
        except EOFError:
            return

        def progress(label: str, done: int, total: int) -> None:
            if label == job.label:  # noqa: B023 - it is called while this job runs only
                connection.send(("step", done))

        try:
            if job.run is None:
                prepare(job.workspace, open_workspace(job.workspace.root)[1], job.stages, progress)
            else:
                run_method(job.workspace, job.run, looks, progress)
        except RangelineError as error:
            connection.send(("failed", str(error)))
        else:
            connection.send(("done", ""))
        # Imported modules stay for good: to look through them for garbage again and again takes a seventh of the time.
        gc.collect()
        gc.freeze()


@dataclass(slots=True, eq=False)
class _Worker:
    process: Any
    connection: Connection
    log: Path
    job: Job | None = None
    steps: int = 0


class Pool:
    """Worker processes of one comparison; use it as a context manager.

    Parameters
    ----------
    num_processes
        Workers at once.
    looks
        How runs are looked at.
    logs
        Folder of the workers' logs.
    tell
        Told one line at a time how far the jobs are.
    """

    def __init__(self, num_processes: int, looks: Looks, logs: Path, tell: Callable[[str], None]) -> None:
        self._num_processes, self._looks, self._logs, self._tell = num_processes, looks, logs, tell
        self._workers: list[_Worker] = []
        self._number = 0
        logs.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> Self:
        """Start nothing yet: workers come with the first jobs."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connections, which ends idle workers, and end the others."""
        for worker in self._workers:
            worker.connection.close()
            if worker.job is not None:
                worker.process.kill()
        for worker in self._workers:
            worker.process.join()

    def run(self, jobs: Sequence[Job], what: str) -> dict[str, str]:
        """Do the jobs in order; return the reason of each that failed, by its label."""
        if not jobs:
            return {}
        waiting: deque[Job] = deque(jobs)
        failures: dict[str, str] = {}
        tally = _Tally(what, len(jobs), sum(job.num_steps for job in jobs), self._tell)
        while waiting or any(worker.job for worker in self._workers):
            self._hand_out(waiting)
            for ready in wait([worker.connection for worker in self._workers], timeout=_MOVE_EVERY_S):
                worker = next(item for item in self._workers if item.connection is ready)
                kind, value = self._hear(worker)
                if kind == "step":
                    tally.step(value - worker.steps)
                    worker.steps = value
                elif worker.job is not None:
                    if kind != "done":
                        failures[worker.job.label] = value
                        self._tell(f"compare failed {worker.job.label}: {value}")
                    tally.finish(worker.job.num_steps - worker.steps)
                    worker.job = None
                if kind == "died":
                    worker.connection.close()
                    self._workers.remove(worker)
            tally.tell()
        tally.tell(last=True)
        return failures

    def _hand_out(self, waiting: deque[Job]) -> None:
        while waiting:
            worker = next((item for item in self._workers if item.job is None), None)
            if worker is None and len(self._workers) >= self._num_processes:
                return
            worker = worker or self._start()
            try:
                worker.connection.send(waiting[0])
            except OSError:  # killed while it was idle: another worker takes the job
                worker.connection.close()
                self._workers.remove(worker)
            else:
                worker.job, worker.steps = waiting.popleft(), 0

    def _start(self) -> _Worker:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        log = self._logs / f"worker-{self._number}.txt"
        log.unlink(missing_ok=True)
        process = context.Process(target=work, args=(theirs, log, self._looks), daemon=True)
        process.start()
        theirs.close()  # so that a dead worker's connection reads as ended
        self._number += 1
        worker = _Worker(process, ours, log)
        self._workers.append(worker)
        return worker

    def _hear(self, worker: _Worker) -> tuple[str, Any]:
        try:
            kind, value = worker.connection.recv()
        except (EOFError, OSError):
            worker.process.join()
            said = worker.log.read_text(encoding="utf-8", errors="replace").splitlines() if worker.log.is_file() else []
            reason = " / ".join(line.strip() for line in said[-_LAST_LINES:]) or "it said nothing"
            return "died", f"its process ended with status {worker.process.exitcode}: {reason}"
        return kind, value


class _Tally:
    """Counts jobs and steps, and says how fast they go."""

    def __init__(self, what: str, num_jobs: int, num_steps: int, tell: Callable[[str], None]) -> None:
        self._what, self._jobs, self._steps, self._say = what, num_jobs, num_steps, tell
        self._jobs_done = self._steps_done = self._steps_worked = 0
        self._start = self._told = self._moved = time.monotonic()

    def step(self, count: int) -> None:
        """Take in steps that were worked on."""
        self._steps_done += count
        self._steps_worked += count

    def finish(self, rest: int) -> None:
        """Take in a job that ended, with the steps that it did not take."""
        self._jobs_done += 1
        self._steps_done += rest

    def tell(self, *, last: bool = False) -> None:
        """Say how far it is, when it is time or at the end."""
        now = time.monotonic()
        if not last and now - self._moved < _MOVE_EVERY_S:
            return
        self._moved = now
        name = f"steps of {self._what}".replace(" ", "_")
        self._say(f"progress {name} {self._steps_done} {self._steps}")
        if not last and now - self._told < _TELL_EVERY_S:
            return
        self._told = now
        rate = self._steps_worked / max(now - self._start, 1e-9)
        left = f", about {(self._steps - self._steps_done) / rate:.0f} s left" if rate and not last else ""
        self._say(f"compare {self._what}: {self._jobs_done} of {self._jobs}, {rate:.2g} steps/s{left}")
