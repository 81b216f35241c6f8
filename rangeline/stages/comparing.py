"""One run of a comparison: the training stages of a usual run, looked at on held-out prompts as it goes.

The steps are those of `TrainingSession`, in this process. After each iteration one row is kept in the run's
`rows.json`; when all are done, `result.json` closes the run, and its iterations' files go unless they are to be kept.
True rewards of unlabelled prompts are read in two places only: after an iteration, for coverage and flips, which
nothing learns from; and by the method named `oracle`, whose policy rewards are the truth itself.
"""

import json
import shutil
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from rangeline.config import PipelineConfig
from rangeline.errors import ConfigError
from rangeline.lineage import digest_bytes, digest_json, write_json
from rangeline.policy.supervised import SupervisedRow
from rangeline.records import PromptRow, RolloutSet
from rangeline.rewards.verifiable import verifier_intervals
from rangeline.seeds import stream
from rangeline.stages.comparison_budget import rollouts_before
from rangeline.stages.comparison_plan import Role, RunPlan
from rangeline.stages.comparison_rows import row_of
from rangeline.stages.comparison_runs import RESULT, TIMINGS, Looks, result_path
from rangeline.stages.comparison_scratch import place_iterations, remove_iterations
from rangeline.stages.data import read_pool, read_world
from rangeline.stages.evaluation import reference_probabilities, reference_rows
from rangeline.stages.iteration import Iteration
from rangeline.stages.iteration_manifest import JUDGED
from rangeline.stages.judging import encode_rows, plan_of, verify_rollouts
from rangeline.stages.oracle import true_rewards
from rangeline.stages.progress import Progress
from rangeline.stages.run import iterations_read
from rangeline.stages.session import TrainingSession
from rangeline.stages.tables import read_intervals, read_rollouts, write_intervals
from rangeline.stages.workspace import Workspace

_ROWS = "rows.json"


def kept_iterations(config: PipelineConfig) -> int:
    """Return how many iterations up to a checkpoint are kept: those that going on reads, and a row of silent ones."""
    return max(iterations_read(config), config.train.max_silent_iterations)


def is_validation(prompt_id: str, share: float) -> bool:
    """Return whether a held-out prompt is for the choice of learning rates: by its own hash, for ever.

    >>> [is_validation(name, 0.5) for name in ("p1", "p2", "p3", "p4")]
    [True, False, True, True]
    """
    return int(digest_bytes(f"validation:{prompt_id}".encode())[:12], 16) / 16**12 < share


def held_out(workspace: Workspace, role: Role, share: float, *, at_most: int) -> list[PromptRow]:
    """Return the evaluation prompts of a role; no prompt has both.

    Raises
    ------
    ConfigError
        None is left for the role.
    """
    rows = [
        row for row in read_pool(workspace, "evaluation") if is_validation(row.prompt_id, share) == (role != "test")
    ]
    if not rows:
        msg = (
            f"'validation_share' must leave prompts for {role}; got none of the evaluation pool. Add held-out prompts."
        )
        raise ConfigError(msg)
    return rows[:at_most]


def run_method(workspace: Workspace, run: RunPlan, looks: Looks, progress: Progress) -> Path:
    """Do one run to its end, or what is left of it; return its `result.json`.

    Raises
    ------
    RangelineError
        What a training run raises: no signal, a judge that gives nothing, a loss that is not finite.
    """
    path = result_path(workspace, run, looks)
    if path.is_file():
        _tidy(path.parent, looks)
        return path
    settings = run.config
    place_iterations(path.parent, looks.scratch)
    with TrainingSession(workspace, settings, run=path.parent.name) as session:
        record = RunRecord(workspace, run, looks, session)
        record.catch_up(session.opened.done)
        for number in session.remaining:
            step(session, number, run)
            record.add(number)
            progress(run.label, number, settings.train.iterations)
        record.close()
    _tidy(path.parent, looks)
    return path


def _tidy(root: Path, looks: Looks) -> None:
    """Let the files of a finished run's iterations go, unless they are to be kept."""
    if not looks.keep_files:
        remove_iterations(root)
        shutil.rmtree(root / "checkpoints", ignore_errors=True)


def step(session: TrainingSession, number: int, run: RunPlan) -> None:
    """Do one iteration, as a training run does it; rewards are replaced where the method says so.

    A reward source without a judge has no states to judge and no coverage to measure.
    """
    session.sample(number)
    if session.plan.needs_judge:
        session.judge_states(number)
    session.bound(number)
    if run.method.rewards != "judge":
        replace_rewards(session.iteration(number), run)
    if session.plan.needs_judge:
        session.cover(number)
    session.update(number)


def replace_rewards(iteration: Iteration, run: RunPlan) -> None:
    """Put exact rewards in the place of the judge's intervals: the truth (`oracle`), or noise (`random`).

    Raises
    ------
    ConfigError
        The workspace has no world, and so no oracle.
    """
    path = iteration.folder / "policy_intervals.parquet"
    write_intervals(iteration.folder / JUDGED, read_intervals(path))
    rollouts = read_rollouts(iteration.folder / "policy_rollouts.parquet")
    if run.method.rewards == "random":
        rewards = _noise(rollouts, run.seed, iteration.number)
    else:
        truth = true_rewards(read_world(iteration.workspace), iteration, "policy", rollouts)
        rewards = [None if np.isnan(value) else float(value) for value in truth]
    write_intervals(path, verifier_intervals(rollouts.prompt_id_N, rewards))


def _noise(rollouts: RolloutSet, seed: int, number: int) -> list[float | None]:
    keys = zip(rollouts.prompt_id_N, rollouts.sample_N, strict=True)
    return [float(stream(seed, "random reward", number, prompt_id, sample).random()) for prompt_id, sample in keys]


class RunRecord:
    """What a comparison keeps of one run, row by row."""

    def __init__(self, workspace: Workspace, run: RunPlan, looks: Looks, session: TrainingSession) -> None:
        self._run, self._looks, self._session = run, looks, session
        self._held_out = held_out(workspace, run.role, looks.validation_share, at_most=run.config.evaluate.max_prompts)
        self._folder = session.opened.folder.root
        self._rows: list[dict[str, Any]] = _read(self._folder / _ROWS, [])
        self._timings: list[dict[str, float]] = _read(self._folder / TIMINGS, [])

    @cached_property
    def _references(self) -> list[SupervisedRow]:
        return reference_rows(self._session.worker.tokenizer, self._held_out, self._run.config)

    def catch_up(self, done: int) -> None:
        """Take in the start, and an iteration that was complete before its row could be written."""
        self._rows = [row for row in self._rows if row["iteration"] <= done]
        if not self._rows:
            self._rows = [{"iteration": 0, **self._look()}]
        if self._rows[-1]["iteration"] < done:
            self.add(done)

    def add(self, number: int) -> None:
        """Take in the row of an iteration that is complete, then let old files go.

        What lies between two checkpoints is made again after a failure. So the rows are written with a checkpoint, and
        right before it: only the checkpoint's own row can then be left to make, as `catch_up` does.
        """
        iteration = self._session.iteration(number)
        row = {"iteration": number, **row_of(iteration)}
        if number % self._looks.every == 0 or number == self._run.config.train.iterations:
            with self._session.timed("look_s"):
                row |= self._look()
        self._rows.append(row)
        self._timings.append({"iteration": number, **self._session.timings})
        self._session.timings.clear()
        if iteration.is_saved or self._session.iteration(number + 1).is_saved:
            write_json(self._folder / TIMINGS, self._timings)
            write_json(self._folder / _ROWS, self._rows)
        if not self._looks.keep_files:
            every = self._run.config.train.checkpoint_every
            saved = number - number % every
            kept = kept_iterations(self._run.config)
            for old in range(max(1, saved - every - kept), saved - kept + 1):
                shutil.rmtree(self._session.opened.folder.iteration(old), ignore_errors=True)

    def _look(self) -> dict[str, Any]:
        session, settings = self._session, self._run.config
        if settings.evaluate.method == "probability":
            value_P = reference_probabilities(session.worker.model, self._references, settings)
            return {"accuracy": float(value_P.mean()), "reward": None, "unscored_share": None}
        rollouts = session.worker.generate(
            encode_rows(self._held_out, session.worker.tokenizer),
            plan_of(settings, group_size=settings.evaluate.samples),
            iteration=0,  # every look draws from the same streams, so that looks differ by the policy alone
            purpose=f"look/{self._run.role}",
        )
        reward = verify_rollouts(rollouts, {row.prompt_id: row for row in self._held_out}).truth_N
        known = reward[np.isfinite(reward)]
        return {
            # A rollout that nobody could score has not chosen the best answer.
            "accuracy": float((reward == 1).mean()),
            "reward": float(known.mean()) if known.size else None,
            "unscored_share": float(1 - known.size / reward.size),
        }

    def close(self) -> None:
        """Write `result.json`."""
        run = self._run
        content = {
            "design": run.design,
            "method": run.method.name,
            "rewards": run.method.rewards,
            "estimator": run.config.advantages.estimator,
            "source": run.config.reward.source,
            "asks_judge": self._session.plan.needs_judge,
            "pairing": pairing_of(self._session),
            "before": rollouts_before(self._session.workspace, self._session.plan.stages),
            "role": run.role,
            "seed": run.seed,
            "learning_rate": run.config.objective.learning_rate,
            "num_held_out": len(self._held_out),
            "held_out_sha256": digest_json([row.prompt_id for row in self._held_out]),
            "target": 1 - run.config.intervals.alpha,
            "rows": self._rows,
        }
        write_json(self._folder / RESULT, content)


def pairing_of(session: TrainingSession) -> str:
    """Return a digest of what settles a run's first rollouts; runs of a seed that share it must draw the same."""
    plan, train = session.plan, session.config.train
    pools = [plan.pool, *(["warmup"] if train.labelled_prompts else [])]
    # Which prompts a source can score differs between sources of one pool.
    usable = [[row.prompt_id for row in plan.usable(read_pool(session.workspace, pool), pool)] for pool in pools]
    facts = [plan.pool, usable, plan.needs_judge, plan.is_supervised]
    counts = [train.prompts_per_iteration, train.labelled_prompts, train.ratio_prompts, train.audit_prompts]
    return digest_json([*facts, *counts, session.config.sampling.model_dump(mode="json")])


def _read(path: Path, default: Any) -> Any:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else default
