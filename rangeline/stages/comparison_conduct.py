"""Conduct a comparison: `python -m rangeline.stages.comparison_conduct WORKSPACE PLAN PROCESSES [a.b=c ...]`.

Seeds are made first, then the tuning runs, which choose learning rates, then the reported runs. The same command
later does only what is not complete. Progress goes to standard output as lines that the flows understand.
"""

import fcntl
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rangeline.errors import ConfigError, RangelineError
from rangeline.lineage import write_json
from rangeline.orphans import watch_parent
from rangeline.stages.comparison_jobs import Comparison, Job, choose_rates, lay_out
from rangeline.stages.comparison_plan import RunPlan
from rangeline.stages.comparison_pool import Pool
from rangeline.stages.comparison_runs import Looks, result_path
from rangeline.stages.comparison_scratch import scratch_folder


def tuned_rates(comparison: Comparison, looks: Looks) -> tuple[dict[tuple[str, str], float], dict[str, Any]]:
    """Return the learning rate of each design and method, and the record of how it was chosen.

    Raises
    ------
    ConfigError
        A method finished no tuning run.
    """
    plan, tuning = comparison.plan, comparison.plan.tuning
    if tuning is None:
        return {}, {}
    runs = [(job, job.run) for job in comparison.tuning_jobs() if job.run]
    rates: dict[tuple[str, str], float] = {}
    said: dict[str, Any] = {"grid": list(tuning.grid), "seeds": list(tuning.seeds), "designs": {}}
    for design in plan.designs:
        scores: dict[str, dict[float, list[float | None]]] = {}
        for job, run in runs:
            if run.design in plan.tuned_on(design):
                by_rate = scores.setdefault(run.method.name, {})
                score = _final_accuracy(result_path(job.workspace, run, looks))
                by_rate.setdefault(run.config.objective.learning_rate, []).append(score)
        chosen = choose_rates(scores, tuning.grid)
        rates |= {(design, method): rate for method, rate in chosen.items()}
        said["designs"][design] = {
            "tuned_on": list(plan.tuned_on(design)),
            "scores": {name: {f"{rate:g}": v for rate, v in by_rate.items()} for name, by_rate in scores.items()},
            "chosen": chosen,
            "at_edge": sorted(n for n, rate in chosen.items() if rate in (min(tuning.grid), max(tuning.grid))),
        }
    return rates, said


def _final_accuracy(path: Path) -> float | None:
    if not path.is_file():
        return None
    return float(json.loads(path.read_text(encoding="utf-8"))["rows"][-1]["accuracy"])


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            msg = f"Comparison '{folder.name}' must run once at a time; another process has it ({folder}). Wait for it."
            raise ConfigError(msg) from error
        yield


def conduct(comparison: Comparison, num_processes: int, tell: Callable[[str], None]) -> dict[str, str]:
    """Do everything that a comparison asks for and that is not complete; return the failures by label.

    Writes `tuning.json` and, last, `runs.json`: where each reported run's result lies, and what failed.

    Raises
    ------
    ConfigError
        Another process works on it, a method finished no tuning run, or there is no such scratch folder.
    """
    plan = comparison.plan
    looks = Looks(
        every=plan.evaluate_every,
        validation_share=plan.validation_share,
        keep_files=plan.keep_files,
        scratch=None if plan.keep_files else scratch_folder(),
    )
    with _alone(comparison.folder), Pool(num_processes, looks, comparison.folder / "logs", tell) as pool:
        starts, further = comparison.prepare_rounds()
        failures = pool.run([job for job in starts if not job.is_made], "seeds made")
        begun = {job.workspace for job in starts if job.is_made}
        failures |= pool.run([job for job in further if not job.is_made and job.workspace in begun], "seeds made")
        failures |= pool.run(_left(comparison.tuning_jobs(), looks), "tuning runs")
        rates, said = tuned_rates(comparison, looks)
        write_json(comparison.folder / "tuning.json", said)
        jobs = comparison.reported_jobs(rates)
        failures |= pool.run(_left(jobs, looks), "runs")
        failures |= _not_begun(jobs, [*further, *starts], failures)
    runs = [
        {
            "design": run.design,
            "method": run.method.name,
            "seed": run.seed,
            "result": result_path(job.workspace, run, looks).relative_to(comparison.folder).as_posix(),
        }
        for job, run in _with_runs(jobs)
    ]
    write_json(comparison.folder / "runs.json", {"runs": runs, "failures": failures})
    return failures


def _left(jobs: Sequence[Job], looks: Looks) -> list[Job]:
    """Return the runs that are not complete and whose seed could be made."""
    return [
        job for job, run in _with_runs(jobs) if job.is_made and not result_path(job.workspace, run, looks).is_file()
    ]


def _not_begun(jobs: Sequence[Job], prepared: Sequence[Job], failures: Mapping[str, str]) -> dict[str, str]:
    """Return why runs could not begin: what they need could not be made."""
    lacking = [job for job in prepared if not job.is_made and job.label in failures]
    return {
        job.label: f"not begun: {item.label} failed: {failures[item.label]}"
        for job, _ in _with_runs(jobs)
        for item in lacking
        if item.workspace == job.workspace and set(item.stages) <= set(job.stages)
    }


def _with_runs(jobs: Sequence[Job]) -> list[tuple[Job, RunPlan]]:
    return [(job, job.run) for job in jobs if job.run is not None]


def main(arguments: Sequence[str]) -> int:
    """Conduct the comparison that the arguments name; return 0, also where single runs failed, which it names."""
    watch_parent()

    def tell(line: str) -> None:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()

    try:
        root, plan, processes, *assignments = arguments
        conduct(lay_out(Path(root), Path(plan), assignments), int(processes), tell)
    except RangelineError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
