"""The manifest that closes an iteration: which files it made, from which pools, stages and iteration before."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rangeline.config import PipelineConfig
from rangeline.lineage import MANIFEST_NAME, read_manifest, write_manifest
from rangeline.policy.retention import NOTE
from rangeline.stages.completions import PAGE_NAME, TABLE_NAME
from rangeline.stages.crediting import STEPS_NAME
from rangeline.stages.iteration_metrics import MEASURED
from rangeline.stages.overlap import OVERLAP_NAME
from rangeline.stages.quarantine import QUARANTINE_NAME
from rangeline.stages.reward_plan import plan_rewards
from rangeline.stages.workspace import Workspace

JUDGED = "judged_intervals.parquet"
"""Where the judge's intervals of the policy share lie when a comparison trains on other rewards."""
_JUDGED_SHARES = ("policy", "ratio", "audit")


def write_iteration_manifest(
    workspace: Workspace,
    config: PipelineConfig,
    folder: Path,
    *,
    shares: Sequence[str],
    name: tuple[str, int],
    former: Path | None,
) -> None:
    """Write the manifest of an iteration whose other files are all there.

    Parameters
    ----------
    workspace, config, folder
        Where, with which settings, and the iteration's own folder.
    shares
        Shares of prompts that were sampled.
    name
        Of the run, and the iteration's number.
    former
        Manifest of the iteration before; None in the first.

    Raises
    ------
    LineageError
        A file that every iteration has is not there.
    """
    plan = plan_rewards(config)
    judged = plan.needs_judge
    names = [f"{share}_rollouts.parquet" for share in shares]
    names += ["policy_intervals.parquet", "advantages.parquet", "audit_coverage.parquet"]
    names += ["credit.json", "update.json", "metrics.json"]
    if judged:
        names += [f"{share}_judgments.parquet" for share in _JUDGED_SHARES]
        names += ["audit_intervals.parquet", "ratio.json", OVERLAP_NAME, "coverage.json"]
    # The gate is the pipeline's; not every iteration recalibrates, is evaluated, ends with a checkpoint, or has a
    # source that keeps a state.
    optional = ["checkpoint.json", NOTE, "gate.json", "monitor.json", "recalibration.parquet", *MEASURED]
    optional += [QUARANTINE_NAME]
    optional += ["reward.json", "reward_state.json", "taught.parquet", "adaptation.json", "choice.json", JUDGED]
    optional += [STEPS_NAME, TABLE_NAME, PAGE_NAME]
    names += [name for name in optional if (folder / name).is_file()]
    facts: dict[str, Any] = {"run": name[0], "iteration": name[1]}
    if judged:
        facts["judge"] = read_manifest(workspace.calibration / MANIFEST_NAME).facts["judge"]
    mixed = ["warmup"] if config.train.labelled_prompts else []
    pools = dict.fromkeys([plan.pool, *mixed, *shares[1:]])
    base = [getattr(workspace, stage) / MANIFEST_NAME for stage in ("pools", "warmup", *plan.stages)]
    write_manifest(
        folder / MANIFEST_NAME,
        workspace.root,
        kind="iteration",
        inputs=[workspace.pools / f"{pool}.parquet" for pool in pools],
        outputs={folder / name: None for name in names},
        parents=[*base, *([former] if former else [])],
        parameters=config.model_dump(
            mode="json", include={"seed", "sampling", "intervals", "reward", "advantages", "overlap"}
        ),
        facts={**facts, "objective": config.objective.model_dump(mode="json")},
    )
