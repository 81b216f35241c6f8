"""What a comparison has to do, as jobs: make each seed's data and start once, then run every method on it."""

import fcntl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rangeline.config import VERSIONED_SECTIONS, PipelineConfig, build_config, merge, parse_assignment, read_settings
from rangeline.errors import ConfigError
from rangeline.lineage import MANIFEST_NAME, digest_file, digest_json
from rangeline.stages.comparison_plan import ComparisonPlan, RunPlan, plan_run, read_plan, run_settings
from rangeline.stages.progress import Progress
from rangeline.stages.reward_plan import plan_rewards
from rangeline.stages.workspace import PROJECT_HOME, Workspace, fill_workspace, find_file, model_cache

START = ("generated", "prompts", "pools", "warmup")
"""Stages that every run begins from."""
_SETS = {"calibration": ("calibration",), "anchors": ("anchors", "metric_head")}
"""What reward sources need beyond them, and which stages make it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One piece of work for one process."""

    workspace: Workspace
    run: RunPlan | None
    """None makes the stages."""
    stages: tuple[str, ...]
    """Stages of the workspace that it makes, or that must be made before its run."""
    label: str

    @property
    def is_made(self) -> bool:
        """True where every stage is made."""
        return all((getattr(self.workspace, name) / MANIFEST_NAME).is_file() for name in self.stages)

    @property
    def num_steps(self) -> int:
        """Return how many steps it counts for."""
        return self.run.config.train.iterations if self.run else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A plan laid out in a workspace."""

    plan: ComparisonPlan
    base: Mapping[str, Any]
    """The workspace's settings with the plan's laid over them."""
    folder: Path
    seeds: Mapping[tuple[str, int], Workspace]
    """The workspace of each design and seed, shared by all methods."""

    def prepare_rounds(self) -> tuple[list[Job], list[Job]]:
        """Return a job for the data and start of every seed of every design, then one for each thing sources need.

        What one source needs and cannot be made sinks the runs of that source alone.
        """
        needed: dict[Workspace, set[str]] = {}
        for job in (*self.tuning_jobs(), *self.reported_jobs({})):
            needed.setdefault(job.workspace, set()).update(job.stages)
        first, second = [], []
        for (design, seed), place in self.seeds.items():
            label = f"{design}, seed {seed}"
            first.append(Job(workspace=place, run=None, stages=START, label=f"{label}: data and start"))
            for name, stages in _SETS.items():
                if needed.get(place, set()) & set(stages):
                    second.append(Job(workspace=place, run=None, stages=stages, label=f"{label}: {name}"))
        return first, second

    def tuning_jobs(self) -> list[Job]:
        """Return a job for every method, rate, tuning design and tuning seed."""
        tuning, plan = self.plan.tuning, self.plan
        if tuning is None:
            return []
        designs = dict.fromkeys(name for design in plan.designs for name in plan.tuned_on(design))
        return [
            self._job(plan_run(plan, self.base, design=design, seed=seed, method=method, role="validation", rate=rate))
            for design in designs
            for seed in tuning.seeds
            for method in plan.methods
            for rate in tuning.grid
        ]

    def reported_jobs(self, rates: Mapping[tuple[str, str], float]) -> list[Job]:
        """Return a job for every reported run, seed by seed; `rates` by design and method, absent: the method's own."""
        return [
            self._job(
                plan_run(
                    self.plan,
                    self.base,
                    design=design,
                    seed=seed,
                    method=method,
                    role="test",
                    rate=rates.get((design, method.name)),
                )
            )
            for design in self.plan.designs
            for seed in self.plan.seeds_of(design)
            for method in self.plan.methods
        ]

    def _job(self, run: RunPlan) -> Job:
        stages = (*START, *plan_rewards(run.config).stages)
        return Job(workspace=self.seeds[run.design, run.seed], run=run, stages=stages, label=run.label)


def lay_out(root: Path, plan_file: Path, assignments: Sequence[str] = ()) -> Comparison:
    """Read a plan and make the workspace of each of its seeds, settings only.

    Parameters
    ----------
    root
        Workspace whose settings are the base, and whose `comparisons` folder holds everything.
    plan_file
        The plan.
    assignments
        `a.b=c` texts laid over the plan's settings.

    Raises
    ------
    ConfigError
        The plan or a setting is not valid, or a file that it names does not exist.
    """
    plan, over = read_plan(plan_file)
    base = merge(read_settings(root / "params.yaml"), over)
    for text in assignments:
        base = merge(base, parse_assignment(text))
    folder = root.resolve() / "comparisons" / plan.name
    beside = (plan_file.parent, root, PROJECT_HOME)
    seeds = {}
    for design in dict.fromkeys((*plan.designs, *(plan.tuning.designs if plan.tuning else ()))):
        tuned = any(design in plan.tuned_on(name) for name in plan.designs)
        wanted = (*plan.seeds_of(design), *(plan.tuning.seeds if plan.tuning and tuned else ()))
        for seed in dict.fromkeys(wanted):
            values = run_settings(plan, base, design, seed)
            place = Workspace(folder / design / f"seed-{seed}-{_data_digest(values, beside)}")
            fill_workspace(place, values, beside)
            seeds[design, seed] = place
    result = Comparison(plan=plan, base=base, folder=folder, seeds=seeds)
    result.tuning_jobs(), result.reported_jobs({})  # every setting is checked before anything is spent
    return result


def _data_digest(values: Mapping[str, Any], beside: Sequence[Path]) -> str:
    """Return what the data, start and calibration of a seed depend on: other settings are another workspace."""
    config = build_config(values, source="plan")
    files = [*config.data.files, config.judge.rubric]
    content = {
        "settings": config.model_dump(mode="json", include=set(VERSIONED_SECTIONS)),
        "files": [digest_file(find_file(name, beside)) for name in files],
    }
    return digest_json(content)[:8]


def prepare(workspace: Workspace, config: PipelineConfig, stages: Sequence[str], progress: Progress) -> None:
    """Make what a seed's runs share, stage by stage; what is there already is not made again."""
    from rangeline.stages import anchors, calibration, data, warmup

    makers = {
        "generated": lambda: data.generate(workspace, config),
        "prompts": lambda: data.ingest(workspace, config),
        "pools": lambda: data.split(workspace, config),
        "warmup": lambda: warmup.warmup(workspace, config, progress),
        "calibration": lambda: calibration.calibrate(workspace, config, progress),
        "anchors": lambda: anchors.anchors(workspace, config, progress),
        "metric_head": lambda: anchors.metric_head(workspace, config, progress),
    }
    for name in stages:
        folder: Path = getattr(workspace, name)
        if not (folder / MANIFEST_NAME).is_file():
            # A start that all seeds share is made by the first and copied by the others, which wait for it.
            with _turn(model_cache()) if name == "warmup" and config.warmup.teaches == "format" else nullcontext():
                makers[name]()


@contextmanager
def _turn(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".warmup.lock").open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def choose_rates(
    scores: Mapping[str, Mapping[float, Sequence[float | None]]], grid: Sequence[float]
) -> dict[str, float]:
    """Return each method's learning rate: the best mean score, the smaller rate where two are equal.

    Parameters
    ----------
    scores
        By method and rate, a score for every tuning run; None where the run failed, which rules the rate out.
    grid
        The rates that were tried.

    Raises
    ------
    ConfigError
        Every rate of a method is ruled out.

    Examples
    --------
    >>> choose_rates({"range": {0.1: [0.5, 0.7], 0.2: [0.6, None], 0.3: [0.7, 0.5]}}, [0.1, 0.2, 0.3])
    {'range': 0.1}
    """
    chosen = {}
    for method, by_rate in scores.items():
        means = {
            rate: sum(v for v in by_rate[rate] if v is not None) / len(by_rate[rate])
            for rate in sorted(grid)
            if by_rate.get(rate) and None not in by_rate[rate]
        }
        if not means:
            msg = f"Method '{method}' must finish its tuning runs at one rate at least; got none of {sorted(grid)}."
            raise ConfigError(msg)
        best = max(means.values())
        chosen[method] = next(rate for rate, mean in means.items() if mean >= best - 1e-12)
    return chosen
