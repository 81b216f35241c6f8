"""One training iteration in steps, each with files in and files out: sample, judge, bound, cover, credit, update.

An iteration's folder holds rollouts, judgments and intervals of three shares of prompts: `policy` (updates),
`ratio` (density ratio only) and `audit` (labelled; coverage only). True rewards of policy prompts are never read
here, but for the labelled prompts that the configuration mixes in.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from rangeline.advantages import compute_advantages, count_sign_flips, median_pair_weight
from rangeline.config import PipelineConfig
from rangeline.conformal.coverage import coverage_report, covered_N
from rangeline.conformal.density_ratio import DensityRatio, fit_density_ratio
from rangeline.conformal.overlap import overlap_report
from rangeline.errors import CalibrationError
from rangeline.lineage import MANIFEST_NAME, atomic_write, read_manifest, write_json, write_manifest
from rangeline.policy.checkpoint import prune
from rangeline.policy.worker import PolicyWorker
from rangeline.records import CoverageReport, PromptRow, RewardIntervals
from rangeline.rewards.judge_interval import judge_intervals
from rangeline.rewards.source import merge
from rangeline.rewards.verifiable import verifier_intervals
from rangeline.seeds import stream
from rangeline.stages.adaptation import Repair, keep_repair, learn, repair_numbers, repair_of
from rangeline.stages.calibration import Calibration
from rangeline.stages.data import read_pool
from rangeline.stages.estimator import ChosenEstimator, set_estimator
from rangeline.stages.judging import FrozenJudge, encode_rows, judge_all, plan_of, verify_rollouts
from rangeline.stages.progress import Progress
from rangeline.stages.run import RunFolder
from rangeline.stages.tables import (
    read_advantages,
    read_intervals,
    read_judgments,
    read_rollouts,
    read_table,
    write_advantages,
    write_intervals,
    write_judgments,
    write_rollouts,
    write_table,
)
from rangeline.stages.workspace import Workspace

SHARES = ("policy", "ratio", "audit")


def pick_rows(rows: Sequence[PromptRow], count: int, *, seed: int, purpose: str, iteration: int) -> list[PromptRow]:
    """Return the prompts of one iteration: epoch after epoch of keyed permutations, so no loader state exists."""
    total = len(rows)
    count = min(count, total)
    first = (iteration - 1) * count
    last_epoch = (first + count - 1) // total
    order = np.empty(0, dtype=np.int64)
    drawn: list[int] = []
    for epoch in range(last_epoch + 1):
        # The iteration that straddles two epochs holds this many of the former one; they come late in the new one.
        straddling = order[total - (epoch * total) % count :] if epoch and (epoch * total) % count else order[:0]
        fresh = stream(seed, purpose, epoch).permutation(total)
        order = np.concatenate([fresh[~np.isin(fresh, straddling)], fresh[np.isin(fresh, straddling)]])
        begin, end = max(first - epoch * total, 0), min(first + count - epoch * total, total)
        drawn += order[begin:end].tolist() if end > begin else []
    return [rows[i] for i in drawn]


@dataclass(frozen=True)
class Iteration:
    """The steps of one iteration of one run; every step reads the files of the steps before."""

    workspace: Workspace
    config: PipelineConfig
    run: RunFolder
    number: int

    @cached_property
    def folder(self) -> Path:
        """Where this iteration's artifacts lie."""
        return self.run.iteration(self.number)

    @cached_property
    def rows(self) -> dict[str, list[PromptRow]]:
        """Prompts of each share."""
        train, seed = self.config.train, self.config.seed
        policy, audit = read_pool(self.workspace, "policy"), read_pool(self.workspace, "audit")
        domains = {row.domain for row in policy}
        # Coverage is promised for the policy's own distribution; labelled prompts of it are the better audit.
        audit = tuple(row for row in audit if row.domain in domains) or audit
        pick = partial(pick_rows, seed=seed, iteration=self.number)
        chosen = {
            "policy": pick(policy, train.prompts_per_iteration, purpose="order/policy"),
            "ratio": pick(read_pool(self.workspace, "ratio"), train.ratio_prompts, purpose="order/ratio"),
            "audit": pick(audit, train.audit_prompts, purpose="order/audit"),
        }
        if train.labelled_prompts:
            labelled = read_pool(self.workspace, "warmup")
            chosen["policy"] += pick(labelled, train.labelled_prompts, purpose="order/labelled")
        return chosen

    def _by_id(self, share: str) -> Mapping[str, PromptRow]:
        return {row.prompt_id: row for row in self.rows[share]}

    def sample(self, worker: PolicyWorker, progress: Progress) -> None:
        """Draw the rollouts of every share from the current policy."""
        for share in SHARES:
            rollouts = worker.generate(
                encode_rows(self.rows[share], worker.tokenizer),
                plan_of(self.config),
                iteration=self.number,
                purpose=f"train/{share}",
                progress=partial(progress, f"sample {share}"),
            )
            write_rollouts(self.folder / f"{share}_rollouts.parquet", rollouts)

    def judge(self, judge: FrozenJudge, calibration: Calibration, progress: Progress) -> None:
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
        for share in SHARES:
            rollouts, rows = read_rollouts(self.folder / f"{share}_rollouts.parquet"), self._by_id(share)
            judgments = judge_all(judge, rollouts, rows, verify_rollouts(rollouts, rows), progress, f"judge {share}")
            write_judgments(self.folder / f"{share}_judgments.parquet", judgments)

    def refit_ratio(self, calibration: Calibration) -> None:
        """Fit the density ratio of the frozen source states against this policy's states of the ratio pool."""
        settings, source = self.config.intervals, calibration.source
        target = read_judgments(self.folder / "ratio_judgments.parquet")
        source_SK, target_DK = source.levels_NK[~source.missing_N], target.levels_NK[~target.missing_N]
        ratio = fit_density_ratio(
            source_SK,
            target_DK,
            source.num_levels,
            method=settings.ratio,
            regularisation=settings.ratio_l2,
            log_cap=(-settings.log_cap, settings.log_cap),
        )
        overlap = overlap_report(ratio, source_SK, target_DK, calibration.calibration.levels_CK)
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
        return judge_intervals(
            read_judgments(self.folder / f"{share}_judgments.parquet"),
            scorer=calibration.scorer,
            scale=calibration.scale,
            ratio=repair.blended.ratio,
            calibration=repair.blended.rows,
            alpha=repair.level.alpha,
            log_discount_C=repair.blended.log_discount_C,
        )

    def bound(self, calibration: Calibration, *, shares: Sequence[str] = ("policy", "audit")) -> None:
        """Give every policy and audit rollout its reward interval; labelled policy prompts get their verdict."""
        repair = self.repair(calibration)
        if self.config.intervals.adapt != "none":
            keep_repair(self.folder, repair)
        for share in shares:
            intervals = self._judge_intervals(share, calibration, repair)
            if share == "policy" and self.config.train.labelled_prompts:
                rollouts, rows = read_rollouts(self.folder / "policy_rollouts.parquet"), self._by_id("policy")
                truth = verify_rollouts(rollouts, rows).truth_N
                rewards = [None if math.isnan(value) else float(value) for value in truth]
                labelled_N = np.array([rows[prompt_id].reference is not None for prompt_id in rollouts.prompt_id_N])
                intervals = merge(intervals, verifier_intervals(rollouts.prompt_id_N, rewards), override_N=labelled_N)
            write_intervals(self.folder / f"{share}_intervals.parquet", intervals)

    def cover(self) -> CoverageReport:
        """Compare the audit share's intervals with the truth, by prompt."""
        rollouts = read_rollouts(self.folder / "audit_rollouts.parquet")
        intervals = read_intervals(self.folder / "audit_intervals.parquet")
        truth = verify_rollouts(rollouts, self._by_id("audit")).truth_N
        gate = self.config.coverage
        report = coverage_report(
            intervals,
            truth,
            alpha=self.config.intervals.alpha,
            confidence=gate.confidence,
            ess_share=self._overlap()["ess_share"],
            min_rows=gate.min_rows,
            min_prompts=gate.min_prompts,
            seed=self.config.seed,
        )
        covered, valid = covered_N(intervals, truth)
        if self.config.intervals.adapt != "none":
            learn(self.folder, covered, valid, intervals.prompt_id_N, rate=self.config.intervals.adapt_rate)
        no_interval = intervals.missing_N
        write_table(
            self.folder / "audit_coverage.parquet",
            {
                "prompt_id": list(rollouts.prompt_id_N),
                "truth": [None if math.isnan(value) else float(value) for value in truth],
                "covered": [bool(c) if v else None for c, v in zip(covered, valid, strict=True)],
                "width": [
                    None if m else float(2 * h) for m, h in zip(no_interval, intervals.half_width_N, strict=True)
                ],
                "unbounded": [None if m else bool(u) for m, u in zip(no_interval, intervals.unbounded_N, strict=True)],
                "missing": [not bool(v) for v in valid],
            },
        )
        write_json(self.folder / "coverage.json", asdict(report))
        return report

    def write_gate(self, *, success: bool, failed: Sequence[str]) -> None:
        """Keep what the coverage gate said: a repeat of the run must not forget it."""
        write_json(self.folder / "gate.json", {"success": success, "failed": list(failed)})

    def credit(self, chosen: ChosenEstimator | None = None) -> bool:
        """Turn the policy share's intervals into advantages, beside the midpoint's; return whether any is not zero."""
        intervals = read_intervals(self.folder / "policy_intervals.parquet")
        chosen = chosen or set_estimator(self.config.advantages)
        settings, form = chosen.settings, self.config.advantages.form
        if chosen.record is not None:
            write_json(self.folder / "choice.json", chosen.record)
        advantages = compute_advantages(
            intervals,
            estimator=settings.estimator,
            reduction=settings.reduction,
            form=form,
            reference_width=settings.reference_width,
            alpha=self.config.intervals.alpha,
        )
        midpoint = compute_advantages(intervals, estimator="dr_grpo", reduction="middle")
        write_advantages(self.folder / "advantages.parquet", advantages, midpoint=midpoint.value_N)
        valid = ~intervals.missing_N
        write_json(
            self.folder / "credit.json",
            {
                "reward/missing_share": float(intervals.missing_N.mean()),
                "reward/mean_center": float(intervals.center_N[valid].mean()) if valid.any() else None,
                "interval/policy_width": float(2 * intervals.half_width_N[valid].mean()) if valid.any() else None,
                "advantage/active_share": float((advantages.value_N != 0).mean()),
                "advantage/sign_flips": count_sign_flips(advantages.value_N, midpoint.value_N),
                "advantage/median_pair_weight": median_pair_weight(
                    intervals, form=form, reference_width=settings.reference_width
                ),
                "advantage/rms": float(np.sqrt(np.mean(advantages.value_N**2))),
            },
        )
        return bool((advantages.value_N != 0).any())

    def update(self, worker: PolicyWorker, progress: Progress) -> None:
        """Update the policy, write its checkpoint, then the manifest that closes the iteration."""
        rollouts = read_rollouts(self.folder / "policy_rollouts.parquet")
        advantages = read_advantages(self.folder / "advantages.parquet")
        batch = worker.batch(rollouts, advantages, max_tokens=self.config.sampling.max_tokens)
        progress("update policy", 0, 1)
        report = worker.update(batch)
        progress("update policy", 1, 1)
        facts = asdict(report)
        facts.pop("seconds")
        # An update that was not made has no loss; its zeros are no measurements.
        write_json(self.folder / "update.json", {"skipped": True} if report.skipped else facts)
        checkpoint = self.run.checkpoint(self.number)
        worker.save(checkpoint, {"iteration": self.number, "run": self.run.name})
        atomic_write(self.folder / "checkpoint.json", (checkpoint / "COMPLETE").read_bytes())
        write_json(self.folder / "metrics.json", self._metrics())
        self._close()
        prune(self.run.root / "checkpoints", keep_last=self.config.train.keep_checkpoints)

    def _parents(self) -> list[Path]:
        before = self.run.iteration(self.number - 1) / MANIFEST_NAME if self.number > 1 else None
        base = [getattr(self.workspace, name) / MANIFEST_NAME for name in ("pools", "warmup", "calibration")]
        return [*base, *([before] if before else [])]

    def _close(self) -> None:
        tables = {
            f"{share}_{name}": None
            for share in SHARES
            for name in ("rollouts.parquet", "judgments.parquet", "intervals.parquet")
            if (share, name) != ("ratio", "intervals.parquet")
        }
        documents = (
            "ratio.json",
            "coverage.json",
            "credit.json",
            "update.json",
            "metrics.json",
            "checkpoint.json",
        )
        # The gate is the pipeline's, and not every iteration recalibrates.
        optional = ("gate.json", "monitor.json", "recalibration.parquet", "adaptation.json", "choice.json")
        gate = [name for name in optional if (self.folder / name).is_file()]
        names = [*tables, "advantages.parquet", "audit_coverage.parquet", *documents, *gate]
        calibration = read_manifest(self.workspace.calibration / MANIFEST_NAME)
        write_manifest(
            self.folder / MANIFEST_NAME,
            self.workspace.root,
            kind="iteration",
            inputs=[self.workspace.pools / f"{pool}.parquet" for pool in SHARES],
            outputs={self.folder / name: tables.get(name) for name in names},
            parents=self._parents(),
            parameters=self.config.model_dump(mode="json", include={"seed", "sampling", "intervals", "advantages"}),
            facts={
                "run": self.run.name,
                "iteration": self.number,
                "judge": calibration.facts["judge"],
                "objective": self.config.objective.model_dump(mode="json"),
            },
        )

    def write_timings(self, timings: Mapping[str, float]) -> None:
        """Keep the seconds of each step; beside the manifest, since a repeat takes other seconds."""
        write_json(self.folder / "timings.json", dict(timings))

    def metrics(self) -> dict[str, Any]:
        """Return the iteration's numbers; None where a number is not defined."""
        return dict(json.loads((self.folder / "metrics.json").read_text(encoding="utf-8")))

    def _watched(self) -> dict[str, Any]:
        if not (self.folder / "monitor.json").is_file():
            return {}
        stored = json.loads((self.folder / "monitor.json").read_text(encoding="utf-8"))
        said = stored["verdict"]
        return {
            "monitor/mean_miss": said["mean_miss"],
            "monitor/miss_lower": said["lower"],
            "monitor/miss_upper": said["upper"],
            "monitor/num_prompts": said["num_prompts"],
            "monitor/drift_log_wealth": stored["drift_log_wealth"],
        }

    def _metrics(self) -> dict[str, Any]:

        def read(name: str) -> dict[str, Any]:
            return dict(json.loads((self.folder / name).read_text(encoding="utf-8")))

        coverage, overlap, update = read("coverage.json"), self._overlap(), read("update.json")
        judgments = read_judgments(self.folder / "policy_judgments.parquet")
        rollouts = [read_rollouts(self.folder / f"{share}_rollouts.parquet") for share in SHARES]
        truth = read_table(self.folder / "audit_coverage.parquet")["truth"].to_pylist()
        known = [value for value in truth if value is not None]
        return {
            "coverage/empirical": coverage["empirical"],
            "coverage/band_lower": coverage["band_lower"],
            "coverage/band_upper": coverage["band_upper"],
            "coverage/target": coverage["target"],
            "interval/mean_width": coverage["mean_width"],
            "interval/unbounded_share": coverage["unbounded_share"],
            **{f"ratio/{name}": overlap[name] for name in overlap if name not in ("num_source", "num_target")},
            **repair_numbers(self.folder),
            **self._watched(),
            **read("credit.json"),
            "judge/unknown_share": judgments.unknown_share,
            **{f"policy/{name}": value for name, value in update.items() if name != "skipped"},
            "train/accuracy": float(np.mean(known)) if known else None,
            "budget/rollouts": sum(len(item) for item in rollouts),
            "budget/tokens": sum(len(ids) for item in rollouts for ids in item.token_ids_N),
        }
