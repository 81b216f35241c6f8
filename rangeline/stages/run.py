"""A training run's folder: what it was started with, how far it came, and from where it goes on.

An iteration counts as done when its manifest is there and its checkpoint is complete. Whatever else lies in the
folder is the remains of an interrupted iteration; the same seeds make it again.
"""

import difflib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rangeline.config import PipelineConfig
from rangeline.errors import CalibrationError, CheckpointError, ConfigError, LineageError
from rangeline.lineage import MANIFEST_NAME, digest_file, digest_json, read_manifest, write_json
from rangeline.policy.checkpoint import MARKER, is_complete, verify_checkpoint
from rangeline.policy.retention import NOTE, Retention
from rangeline.rollout.pretrained import resolve_dtype
from rangeline.stages.reward_plan import plan_rewards
from rangeline.stages.workspace import Workspace

# These say how long or how strictly a run goes on, not what an iteration computes: a run may be resumed with others.
_FREE_TRAIN_SETTINGS = frozenset(
    {
        "iterations",
        "on_alarm",
        "keep_checkpoints",
        "keep_best",
        "completions",
        "max_silent_iterations",
        "checkpoint_every",
        "evaluate_every",
    }
)
RECENT_ITERATIONS = 20
"""Iterations whose audits the choice of an estimator reads; a recalibration reads fewer."""
STOPPED = "stopped.json"
"""Names the checkpoint that a run made because it was asked to stop."""
# The number of processes changes nothing but rounding.
_FREE_SECTIONS = frozenset({"coverage", "overlap", "evaluate", "processes"})


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Places inside one run."""

    root: Path

    @property
    def name(self) -> str:
        """Name of the run."""
        return self.root.name

    def iteration(self, number: int) -> Path:
        """Folder of one iteration's artifacts."""
        return self.root / "iterations" / f"{number:06d}"

    def checkpoint(self, number: int) -> Path:
        """Folder of the checkpoint written at the end of one iteration."""
        return self.root / "checkpoints" / f"{number:06d}"


@dataclass(frozen=True, slots=True)
class OpenedRun:
    """A run ready to go on."""

    folder: RunFolder
    done: int
    """Iterations that are complete."""
    passed_over: tuple[str, ...]
    """Checkpoints that were newer but not usable, with the reason."""


def iterations_read(config: PipelineConfig) -> int:
    """Return how many iterations going on from a checkpoint reads, that of the checkpoint included.

    Whoever lets files of iterations go must leave these, or the run is taken for damaged and begins anew.
    """
    window = config.intervals.adapt_window if config.intervals.adapt != "none" else 0
    return max(RECENT_ITERATIONS, window)


def run_identity(workspace: Workspace, config: PipelineConfig) -> str:
    """Return a digest of all that decides what an iteration computes.

    Raises
    ------
    CalibrationError
        When calibration or warm-up has not been made.
    """
    settings = config.model_dump(mode="json", exclude=set(_FREE_SECTIONS))
    # "auto" may mean another precision on another machine, which is another computation.
    for key in ("precision", "sampler_dtype"):
        settings["policy"][key] = resolve_dtype(settings["policy"][key])
    for key in ("url", "transfer", "tolerance", "extra", "max_model_len"):  # where the engine is, not what it computes
        settings["rollout"].pop(key)
    for key in ("url", "api_key_env", "budget", "cache"):  # where the judge is, and what it may cost
        settings["judge"].pop(key)
    # How the server is called; its context alone decides which questions are asked.
    settings["judge"]["server"] = {"context_tokens": settings["judge"]["server"]["context_tokens"]}
    settings["train"] = {key: v for key, v in settings["train"].items() if key not in _FREE_TRAIN_SETTINGS}
    # Of the overlap rules, those that widen change intervals; the others only say when the run goes on.
    widening = {name: rule.limit for name, rule in config.overlap if rule.consequence == "widen"}
    if widening:
        settings["overlap"] = widening
    made = {}
    for name in ("pools", "warmup", *plan_rewards(config).stages):
        path: Path = getattr(workspace, name) / MANIFEST_NAME
        if not path.is_file():
            command = {"warmup": "warmup", "anchors": "anchors", "metric_head": "anchors"}.get(name, "calibrate")
            msg = f"'{name}' must be made before training; got no '{path}'. Run 'rangeline {command}' first."
            raise CalibrationError(msg)
        made[name] = [[ref.path, ref.sha256] for ref in read_manifest(path).outputs]
    return digest_json({"settings": settings, "made": made})


def open_run(workspace: Workspace, config: PipelineConfig, name: str | None) -> OpenedRun:
    """Create a run's folder, or open it again where it was left.

    Parameters
    ----------
    workspace, config
        Where and with which settings.
    name
        Name of the run; by default made from the settings, so that the same command finds the same run.

    Raises
    ------
    ConfigError
        When a run of that name was started with other settings, data or calibration.
    """
    identity = run_identity(workspace, config)
    source = config.reward.source
    # Judge intervals, the usual rewards, go without saying.
    prefix = config.advantages.estimator if source == "judge_interval" else f"{source}-{config.advantages.estimator}"
    folder = RunFolder(workspace.run(name or f"{prefix}-{identity[:8]}"))
    path = folder.root / "run.json"
    if path.is_file():
        if read_run(folder)["identity"] != identity:
            msg = (
                f"Run '{folder.name}' was started with other settings, data or calibration; got identity "
                f"{identity[:8]} ({path}). Choose another name with --run."
            )
            raise ConfigError(msg)
    else:
        write_json(path, {"name": folder.name, "identity": identity, "config": config.model_dump(mode="json")})
    done, passed_over = last_complete(folder, thorough=True, back=iterations_read(config) - 1)
    return OpenedRun(folder, done, passed_over)


def read_run(folder: RunFolder) -> dict[str, Any]:
    """Read what a run was started with.

    Raises
    ------
    ConfigError
        When there is no such run, or its file is damaged.
    """
    path = folder.root / "run.json"
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError as error:
        known = sorted(item.parent.name for item in folder.root.parent.glob("*/run.json"))
        close = difflib.get_close_matches(folder.name, known, n=1)
        hint = f" Did you mean '{close[0]}'?" if close else ""
        msg = f"Run '{folder.name}' must exist; got no '{path}'. Known runs: {', '.join(known) or 'none'}.{hint}"
        raise ConfigError(msg) from error
    except ValueError as error:
        msg = f"'{path}' must be JSON; got {error}. Restore it, or start another run with --run."
        raise ConfigError(msg) from error


def last_complete(folder: RunFolder, *, thorough: bool = False, back: int = 0) -> tuple[int, tuple[str, ...]]:
    """Return the number of the last usable iteration (0 for none) and what newer remains were passed over.

    Parameters
    ----------
    folder
        The run.
    thorough
        Compare every file of a checkpoint, and every artifact that going on from it reads, with its recorded sha256:
        equal sizes do not make equal bytes. For whoever goes on from it.
    back
        Iterations before a checkpoint's own whose artifacts are compared too.
    """
    passed_over: list[str] = []
    # A stopped writer leaves names such as 000003.partial-41, which are no checkpoints.
    names = (item.name for item in (folder.root / "checkpoints").glob("[0-9]*"))
    numbers = sorted((int(name) for name in names if name.isdigit()), reverse=True)
    for number in numbers:
        reason = _why_unusable(folder, number) or (_why_damaged(folder, number, back) if thorough else None)
        if reason is None:
            return number, tuple(passed_over)
        passed_over.append(f"checkpoint {number}: {reason}")
    return 0, tuple(passed_over)


def _why_unusable(folder: RunFolder, number: int) -> str | None:
    if not is_complete(folder.checkpoint(number)):
        return "not complete"
    if not (folder.iteration(number) / MANIFEST_NAME).is_file():
        return "its iteration has no manifest"
    return None if _marker_matches(folder, number) else "not the one that its manifest names"


def _why_damaged(folder: RunFolder, number: int, back: int) -> str | None:
    try:
        verify_checkpoint(folder.checkpoint(number))
        for earlier in range(number, max(0, number - back - 1), -1):
            place = folder.iteration(earlier)
            for ref in read_manifest(place / MANIFEST_NAME).outputs:
                path = place / Path(ref.path).name
                if not path.is_file() or digest_file(path) != ref.sha256:
                    return f"'{path}' is not what the manifest of iteration {earlier} names"
    except (CheckpointError, LineageError) as error:
        return str(error)
    return None


def _marker_matches(folder: RunFolder, number: int) -> bool:
    digest = digest_file(folder.checkpoint(number) / MARKER)
    copy, stopped = folder.iteration(number) / "checkpoint.json", folder.root / STOPPED
    if copy.is_file():
        return digest_file(copy) == digest
    # Made because the run was asked to stop where no checkpoint was due: its iteration's manifest is as if it were not.
    return stopped.is_file() and f'"{digest}"' in stopped.read_text(encoding="utf-8")


def retention_of(folder: RunFolder, number: int) -> Retention:
    """Return what the newest saved iteration, up to a number, says of the checkpoints that are kept."""
    for earlier in range(number, 0, -1):
        path = folder.iteration(earlier) / NOTE
        if path.is_file():
            return Retention.from_json(json.loads(path.read_text(encoding="utf-8")))
    return Retention()


def resolve_checkpoint(workspace: Workspace, name: str) -> Path:
    """Find a policy folder by a run's name (its last checkpoint), a checkpoint's path, or `warmup`.

    Raises
    ------
    ConfigError
        When there is nothing of that name.
    CheckpointError
        When the run has no complete checkpoint.
    """
    if name == "warmup":
        return workspace.warmup
    path = workspace.root / name
    if path.resolve().is_relative_to(workspace.root.resolve()) and (path / "policy").is_dir():
        return path
    folder = RunFolder(workspace.runs / name)
    if Path(name).name == name and (folder.root / "run.json").is_file():
        done, _ = last_complete(folder)
        if done:
            return folder.checkpoint(done)
        msg = f"Run '{name}' must have a complete checkpoint; got none. Resume it with 'rangeline train --run {name}'."
        raise CheckpointError(msg)
    msg = f"'{name}' must be 'warmup', a run or a checkpoint folder; got none of them in '{workspace.root}'."
    raise ConfigError(msg)


def free_run_name(workspace: Workspace, base: str) -> str:
    """Return the first of `base`, `base-2`, ... that is no run yet."""
    number, name = 1, base
    while (workspace.run(name) / "run.json").is_file():
        number += 1
        name = f"{base}-{number}"
    return name


def runs_like(workspace: Workspace, config: PipelineConfig, *, prefix: str) -> dict[str, int]:
    """Return the iterations that are done of each run that was begun with these settings and data, by name.

    Parameters
    ----------
    workspace, config
        Where and with which settings.
    prefix
        How the names of the runs begin that count.

    Raises
    ------
    CalibrationError
        When calibration or warm-up has not been made.
    """
    identity = run_identity(workspace, config)
    folders = [RunFolder(path.parent) for path in sorted(workspace.runs.glob(f"{prefix}*/run.json"))]
    return {item.name: last_complete(item)[0] for item in folders if read_run(item)["identity"] == identity}
