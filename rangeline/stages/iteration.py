"""One training iteration in steps, each with files in and files out: sample, judge, bound, cover, credit, update.

An iteration's folder holds rollouts, judgments and intervals of three shares of prompts: `policy` (updates),
`ratio` (density ratio only) and `audit` (labelled; coverage only). True rewards of policy prompts are never read
here, but for the labelled prompts that the configuration mixes in. A reward source that asks no judge leaves out
judgments, density ratio, intervals of the audit share and coverage: nothing was promised there.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from rangeline.config import PipelineConfig
from rangeline.conformal.density_ratio import DensityRatio, fit_density_ratio
from rangeline.conformal.overlap import overlap_report
from rangeline.errors import CalibrationError
from rangeline.lineage import MANIFEST_NAME, atomic_write, digest_file, write_json
from rangeline.policy.processes import Policy
from rangeline.policy.retention import NOTE, Retention, plan_retention
from rangeline.records import CoverageReport, PromptRow, RewardIntervals, RolloutSet, SamplingPlan
from rangeline.rollout.engine import EncodedPrompt
from rangeline.seeds import stream
from rangeline.stages.adaptation import Repair, bound_states, keep_repair, repair_of
from rangeline.stages.audit_share import check_audit, cover_audit
from rangeline.stages.calibration import Calibration
from rangeline.stages.completions import completion_numbers, write_completions
from rangeline.stages.crediting import STEPS_NAME, credit_share, update_policy, write_share
from rangeline.stages.estimator import ChosenEstimator
from rangeline.stages.iteration_manifest import write_iteration_manifest
from rangeline.stages.iteration_metrics import gather_metrics
from rangeline.stages.judging import Judge, judge_all, plan_of, verify_rollouts
from rangeline.stages.known import Known
from rangeline.stages.overlap import apply_rules, write_unweighted
from rangeline.stages.progress import Progress, silent
from rangeline.stages.prompt_order import pick_rows
from rangeline.stages.quarantine import count_silence, quarantined, read_silence, write_silence
from rangeline.stages.reward_plan import RewardPlan, plan_rewards
from rangeline.stages.rewarding import (
    Draw,
    RewardContext,
    RewardModels,
    draw_nothing_for,
    reward_share,
)
from rangeline.stages.run import RunFolder, retention_of
from rangeline.stages.scorers import SCORERS
from rangeline.stages.tables import (
    read_judgments,
    read_rollouts,
    write_intervals,
    write_judgments,
    write_rollouts,
)
from rangeline.stages.workspace import Workspace

SHARES = ("policy", "ratio", "audit")
Asked = dict[str, tuple[list[EncodedPrompt], SamplingPlan]]
"""Prompts and sampling plan of each share."""


@dataclass(frozen=True)
class Iteration:
    """The steps of one iteration of one run; every step reads the files of the steps before."""

    workspace: Workspace
    config: PipelineConfig
    run: RunFolder
    number: int
    known: Known = field(default_factory=Known)

    @cached_property
    def folder(self) -> Path:
        """Where this iteration's artifacts lie."""
        return self.run.iteration(self.number)

    @cached_property
    def rows(self) -> dict[str, list[PromptRow]]:
        """Prompts of each share."""
        train, plan = self.config.train, self.plan
        policy = plan.usable(self.known.pool(self.workspace, plan.pool))
        audit = self.known.pool(self.workspace, "audit")
        domains = {row.domain for row in policy}
        # Coverage is promised for the policy's own distribution; labelled prompts of it are the better audit.
        audit = tuple(row for row in audit if row.domain in domains) or audit
        pick = partial(pick_rows, seed=self.config.seed, iteration=self.number)
        chosen = {
            "policy": pick(policy, train.prompts_per_iteration, purpose="order/policy"),
            "audit": pick(audit, train.audit_prompts, purpose="order/audit"),
        }
        if plan.needs_judge:
            chosen["ratio"] = pick(self.known.pool(self.workspace, "ratio"), train.ratio_prompts, purpose="order/ratio")
        if train.labelled_prompts:
            labelled = plan.usable(self.known.pool(self.workspace, "warmup"), "warmup")
            chosen["policy"] += pick(labelled, train.labelled_prompts, purpose="order/labelled")
        return chosen

    @cached_property
    def plan(self) -> RewardPlan:
        """Which reward source scores which prompt."""
        return plan_rewards(self.config)

    @property
    def shares(self) -> tuple[str, ...]:
        """Shares of prompts: without a judge there is no density ratio to fit."""
        return SHARES if self.plan.needs_judge else ("policy", "audit")

    def _by_id(self, share: str) -> Mapping[str, PromptRow]:
        return {row.prompt_id: row for row in self.rows[share]}

    def sample(self, worker: Policy, progress: Progress) -> None:
        """Draw the rollouts of every share from the current policy."""
        for share, (prompts, plan) in self.asked(worker.tokenizer).items():
            rollouts = worker.generate(
                prompts,
                plan,
                iteration=self.number,
                purpose=f"train/{share}",
                progress=partial(progress, f"sample {share}"),
            )
            write_rollouts(self.folder / f"{share}_rollouts.parquet", rollouts)

    def asked(self, tokenizer: object) -> Asked:
        """Return prompts and plan of every share."""
        return {share: (self.known.encode(self.rows[share], tokenizer), self._sampling(share)) for share in self.shares}

    def _sampling(self, share: str) -> SamplingPlan:
        if share == "policy" and self.plan.is_supervised:
            # Nothing is compared inside a group: one greedy completion is what a prompt can teach or show.
            return SamplingPlan(group_size=1, temperature=0.0, max_tokens=self.config.sampling.max_tokens)
        return plan_of(self.config)

    def judge(self, judge: Judge, calibration: Calibration, progress: Progress) -> None:
        """Map the rollouts of every share to judgment states.

        Raises
        ------
        CalibrationError
            When the judge or rubric is not the one that calibration asked.
        """
        if judge.digest != calibration.source.judge_digest:
            msg = (
                f"The judge must be the one of the calibration set, {calibration.source.judge_digest[:12]}; got "
                f"{judge.digest[:12]} (model, precision or rubric changed). Run 'rangeline calibrate' again."
            )
            raise CalibrationError(msg)
        silence = read_silence(self.run.iteration(self.number - 1))
        held = quarantined(silence)
        for share in SHARES:
            rollouts, rows = read_rollouts(self.folder / f"{share}_rollouts.parquet"), self._by_id(share)
            verdicts = verify_rollouts(rollouts, rows)
            judgments = judge_all(judge, rollouts, rows, verdicts, progress, f"judge {share}", quarantine=held)
            write_judgments(self.folder / f"{share}_judgments.parquet", judgments)
            scorable_N = ~verdicts.unscorable_N
            silence = count_silence(silence, judgments.prompt_id_N, judgments.missing_N, scorable_N)
        write_silence(self.folder, silence)

    def refit_ratio(self, calibration: Calibration) -> None:
        """Fit the density ratio of the frozen source states against this policy's states of the ratio pool."""
        settings, source = self.config.intervals, calibration.source
        target = read_judgments(self.folder / "ratio_judgments.parquet")
        source_SK, target_DK = source.levels_NK[~source.missing_N], target.levels_NK[~target.missing_N]
        ids = (
            [prompt_id for prompt_id, m in zip(pool.prompt_id_N, pool.missing_N, strict=True) if not m]
            for pool in (source, target)
        )
        prompt_ids = (next(ids), next(ids))
        ratio = fit_density_ratio(
            source_SK,
            target_DK,
            source.num_levels,
            method=settings.ratio,
            regularisation=settings.ratio_l2,
            log_cap=(-settings.log_cap, settings.log_cap),
            prompt_ids=prompt_ids,
        )
        overlap = overlap_report(
            ratio,
            source_SK,
            target_DK,
            calibration.calibration.levels_CK,
            prompt_ids=prompt_ids,
            cross_validate=settings.cross_validate,
        )
        write_json(self.folder / "ratio.json", {"ratio": ratio.to_json(), "overlap": asdict(overlap)})

    def _overlap(self) -> dict[str, Any]:
        return dict(json.loads((self.folder / "ratio.json").read_text(encoding="utf-8"))["overlap"])

    def repair(self, calibration: Calibration) -> Repair:
        """Gather what this iteration's intervals are made from, after the ratio is refitted."""
        stored = json.loads((self.folder / "ratio.json").read_text(encoding="utf-8"))["ratio"]
        # Fresh labels come from the target itself: there is nothing to reweigh.
        ratio = None if calibration.is_fresh else DensityRatio.from_json(stored)
        settings, audited = self.config.intervals, set(self._by_id("audit"))
        return repair_of(self.run, self.number, calibration, ratio, settings=settings, audited=audited)

    def _judge_intervals(self, share: str, calibration: Calibration, repair: Repair) -> RewardIntervals:
        judgments = read_judgments(self.folder / f"{share}_judgments.parquet")
        return bound_states(judgments, calibration, repair)

    def bound(
        self,
        calibration: Calibration,
        *,
        shares: Sequence[str] = ("policy", "audit"),
        models: RewardModels | None = None,
        progress: Progress = silent,
    ) -> None:
        """Give every policy and audit rollout its judged interval, and the policy share its rewards by source.

        Where the density ratio is used, its overlap is held against the rules, which may widen intervals.
        """
        repair = self.repair(calibration)
        if self.config.intervals.adapt != "none":
            keep_repair(self.folder, repair)
        bounded = made = {share: self._judge_intervals(share, calibration, repair) for share in shares}
        if not calibration.is_fresh:
            bounded = apply_rules(self.folder, self.config.overlap, calibration.source, bounded)
        elif "audit" in shares:  # a recalibration bounds the policy anew; what led to it stays written down
            write_unweighted(self.folder)
        for share, intervals in bounded.items():
            if share == "policy":
                self.reward(models, judged=intervals, progress=progress)
            else:
                widened_N = intervals.unbounded_N & ~made[share].unbounded_N
                write_intervals(self.folder / f"{share}_intervals.parquet", intervals, widened=widened_N.tolist())

    def reward(
        self, models: RewardModels | None, *, judged: RewardIntervals | None = None, progress: Progress = silent
    ) -> None:
        """Ask every reward source for its prompts of the policy share; write rewards, facts and states."""
        for name in ("reward_state.json", "taught.parquet"):
            (self.folder / name).unlink(missing_ok=True)
        context = RewardContext(
            config=self.config,
            workspace=self.workspace,
            number=self.number,
            rollouts=read_rollouts(self.folder / "policy_rollouts.parquet"),
            rows=self._by_id("policy"),
            models=models,
            judged=judged,
            progress=progress,
        )
        # Judged rollouts are those that were judged: nothing is drawn beyond them.
        draw_for: Callable[[str], Draw] = draw_nothing_for
        # Rollouts drawn ahead are of the policy before, and no others join them.
        if models is not None and judged is None and not self.config.rollout.staleness:
            draw_for = partial(self._draw_for, models, progress)
        share = reward_share(self.plan, SCORERS, context, self._former_states(), draw_for=draw_for)
        write_share(self.folder, share, context.rollouts)

    def _former_states(self) -> dict[str, Any]:
        path = self.run.iteration(self.number - 1) / "reward_state.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}

    def _draw_for(self, models: RewardModels, progress: Progress, source: str) -> Draw:
        return partial(self._draw, models, progress, source)

    def _draw(
        self, models: RewardModels, progress: Progress, source: str, count: int, first: int
    ) -> tuple[RolloutSet, dict[str, PromptRow]] | None:
        """Draw a source's prompts beyond those of the iteration, in an order of their own; None once none is left."""
        drawn = set(self._by_id("policy"))
        # Labelled prompts that are mixed in have a pool, and perhaps a source, of their own.
        mixed = ["warmup"] if self.config.train.labelled_prompts else []
        rows = [
            row
            for pool in (self.plan.pool, *mixed)
            for row in self.plan.usable(self.known.pool(self.workspace, pool), pool)
            if row.prompt_id not in drawn and self.plan.source_of(row) == source
        ]
        order = stream(self.config.seed, "order/refill", self.number).permutation(len(rows))
        chosen = [rows[i] for i in order[first : first + count]]
        if not chosen:
            return None
        rollouts = models.worker.generate(
            self.known.encode(chosen, models.worker.tokenizer),
            self._sampling("policy"),
            iteration=self.number,
            purpose="train/refill",
            progress=partial(progress, "sample refill"),
        )
        return rollouts, {row.prompt_id: row for row in chosen}

    def cover(self) -> CoverageReport:
        """Compare the audit share's intervals with the truth, by prompt."""
        return cover_audit(self.folder, self.config, self._by_id("audit"), ess_share=self._overlap()["ess_share"])

    def check_audit(self) -> None:
        """Verify the audit share of an iteration without intervals: its accuracy is known, its coverage is not."""
        check_audit(self.folder, self._by_id("audit"))

    def write_gate(self, *, success: bool, failed: Sequence[str]) -> None:
        """Keep what the coverage gate said: a repeat of the run must not forget it."""
        write_json(self.folder / "gate.json", {"success": success, "failed": list(failed)})

    def write_answer(self, choice: str, reason: str) -> None:
        """Keep what a person decided about a closed gate, beside what it said; it becomes part of the manifest."""
        said = json.loads((self.folder / "gate.json").read_text(encoding="utf-8"))
        write_json(self.folder / "gate.json", {**said, "answer": {"choice": choice, "reason": reason}})

    def credit(self, chosen: ChosenEstimator | None = None) -> bool:
        """Turn the policy share's intervals into advantages; return whether there is anything to learn from."""
        return credit_share(self.folder, self.config, before=self.run.iteration(self.number - 1), chosen=chosen)

    def update(self, worker: Policy, progress: Progress) -> None:
        """Update the policy from the advantages."""
        progress("update policy", 0, 1)
        write_json(self.folder / "update.json", update_policy(self.folder, self.config, self.plan, worker))
        progress("update policy", 1, 1)

    @property
    def is_saved(self) -> bool:
        """Whether this iteration ends with a checkpoint: every so many do, and the last."""
        train = self.config.train
        return self.number % train.checkpoint_every == 0 or self.number == train.iterations

    def save(self, worker: Policy) -> None:
        """Write this iteration's checkpoint."""
        state = {"iteration": self.number, "run": self.run.name, **self._reward_digest()}
        worker.save(self.run.checkpoint(self.number), state)

    def close(self, worker: Policy) -> None:
        """Write the checkpoint where one is due, the metrics, then the manifest that closes the iteration."""
        # What an interrupted sitting left of this iteration says nothing of this one's checkpoint.
        for name in ("checkpoint.json", NOTE):
            (self.folder / name).unlink(missing_ok=True)
        if self.is_saved:
            checkpoint = self.run.checkpoint(self.number)
            self.save(worker)
            atomic_write(self.folder / "checkpoint.json", (checkpoint / "COMPLETE").read_bytes())
        if self.config.train.completions:
            write_completions(self.folder, self._policy_prompts(), title=f"{self.run.name}, iteration {self.number}")
        measured = completion_numbers(self.folder, before=self.run.iteration(self.number - 1))
        write_json(self.folder / "metrics.json", {**gather_metrics(self.folder, self.shares), **measured})
        if self.is_saved:
            write_json(self.folder / NOTE, self._retention().to_json())
        former = self.run.iteration(self.number - 1) / MANIFEST_NAME if self.number > 1 else None
        write_iteration_manifest(
            self.workspace,
            self.config,
            self.folder,
            shares=self.shares,
            name=(self.run.name, self.number),
            former=former,
        )

    def _retention(self) -> Retention:
        """Say which checkpoints stay now that this one is there."""
        train = self.config.train
        metric = None if train.keep_best == "none" else train.keep_best
        if metric == "auto":
            metric = "evaluation/accuracy" if train.evaluate_every else "train/accuracy"
        return plan_retention(
            retention_of(self.run, self.number - 1),
            self.number,
            keep_last=train.keep_checkpoints,
            metric=metric,
            value=None if metric is None else self.metrics().get(metric),
        )

    def _policy_prompts(self) -> dict[str, PromptRow]:
        """Return every prompt that the policy share may hold, refills included."""
        pools = [self.plan.pool, *(["warmup"] if self.config.train.labelled_prompts else [])]
        return {row.prompt_id: row for name in pools for row in self.known.pool(self.workspace, name)}

    def _reward_digest(self) -> dict[str, str]:
        path = self.folder / "reward_state.json"
        return {"reward_state_sha256": digest_file(path)} if path.is_file() else {}

    def write_timings(self, timings: Mapping[str, float]) -> None:
        """Keep the seconds of each step; beside the manifest, since a repeat takes other seconds."""
        write_json(self.folder / "timings.json", dict(timings))

    def metrics(self) -> dict[str, Any]:
        """Return the iteration's numbers; None where a number is not defined."""
        return dict(json.loads((self.folder / "metrics.json").read_text(encoding="utf-8")))

    def steps(self) -> list[dict[str, float]]:
        """Return the numbers of each optimiser step of the update; none where texts alone were learned."""
        path = self.folder / STEPS_NAME
        return list(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else []
