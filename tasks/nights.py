"""Night tasks: one night at a time, what arrived, whether calibration stands, who serves, and what was done and why."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from rangeline.config import PipelineConfig
from rangeline.errors import BusyError, CheckpointError, PoolError
from rangeline.evaluation.comparison import PairedDifference
from rangeline.evaluation.promotion import accuracy_gate
from rangeline.holding import hold, holder_of
from rangeline.lineage import MANIFEST_NAME, digest_file, read_manifest, write_json
from rangeline.provenance.ledger import read_ledger
from rangeline.stages.evaluation import EvaluationResult
from rangeline.stages.intake import Intake, moved_prompts, pool_table_of, take_in
from rangeline.stages.renewal import calibration_changes, changed_base, changed_judge
from rangeline.stages.retention import NIGHTLY, run_of
from rangeline.stages.run import free_run_name, runs_like
from rangeline.stages.workspace import Workspace, open_workspace
from tasks.audits import audit_target
from tasks.champions import POLICY_MODEL, champion_and_former, give_back, model_versions, was_rolled_back
from tasks.notes import note, prefect_ids, utc_now
from tasks.reporting import logger, show_markdown
from tasks.tracking import CHAMPION, Tracker
from tasks.versioning import refresh_imports

NIGHTS = "_nights"
_UNSCORED_MARGIN = 0.02


@contextmanager
def hold_night(workspace: str) -> Iterator[str | None]:
    """Hold the night's lock of a workspace; give None, or who is at work there, in words: a night, or a training.

    A training reads the pools that a night would make anew.
    """
    place = Workspace(Path(workspace).resolve())
    path = place.locks / "night.lock"
    holder: str | None
    with ExitStack() as stack:
        try:
            stack.enter_context(hold(path, f"The night of '{place.root}'", about=prefect_ids()))
        except BusyError:
            holder = f"another night is at work: {holder_of(path) or 'one that has just ended'}"
        else:
            trainer = holder_of(place.training_lock)
            holder = f"a training is at work: {trainer}" if trainer else None
        yield holder


@contextmanager
def night_record(workspace: str, name: str) -> Iterator[dict[str, Any]]:
    """Give the record of a night to be filled in; write it at the end, as failed where the night ended in an error."""
    root = Path(workspace).resolve()
    record: dict[str, Any] = {"night": name, "started": utc_now(), "outcome": "failed", "reason": "", **prefect_ids()}
    try:
        yield record
    finally:
        error = sys.exception()
        if error is not None:
            record |= {"outcome": "failed", "reason": f"{type(error).__name__}: {error}"}
        record["ended"] = utc_now()
        path = free_record(root / "runs" / NIGHTS, datetime.now(UTC), os.getpid())
        write_json(path, record)
        note(root, "night", files=[path], started=record["started"], facts=_told(record))
        show_markdown("night", _page(record), f"Night {name}")
        level = logger.warning if record["outcome"] in ("failed", "skipped") else logger.info
        level("night %s: %s%s", name, record["outcome"], f"; {record['reason']}" if record["reason"] else "")


def free_record(folder: Path, moment: datetime, pid: int) -> Path:
    """Return where a night's record goes: after a clock was set back, a name may stand for an earlier night already."""
    path, number = folder / f"{moment:%Y%m%dT%H%M%S}-{pid}.json", 1
    while path.exists():
        number += 1
        path = folder / f"{moment:%Y%m%dT%H%M%S}-{pid}-{number}.json"
    return path


def _told(record: dict[str, Any]) -> dict[str, Any]:
    return {name: record[name] for name in ("night", "outcome", "reason")}


def _page(record: dict[str, Any]) -> str:
    rows = "\n".join(f"- **{name}**: {_cell(value)}" for name, value in record.items())
    return f"## Night {record['night']}: {record['outcome']}\n\n{rows}\n"


def _cell(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return f"`{text.replace('`', chr(39))[:2000]}`"


@task(name="take in new prompts", cache_policy=NO_CACHE)
def take_in_prompts(workspace: str, inbox: str) -> dict[str, Any]:
    """Bring data of DVC remotes up to date, then add what is new in the inbox; return what was done."""
    place, config = open_workspace(workspace)
    folder = (place.root / inbox).resolve()
    refreshed = refresh_imports(place.root, (folder, place.raw))
    found: Intake = take_in(place, config, folder)
    for refusal in found.refused:
        who = f"'{refusal.prompt_id}' of " if refusal.prompt_id else ""
        logger.warning("not taken in: %s'%s': %s", who, refusal.file, refusal.reason)
    logger.info("inbox: %d new prompts, %d known, %d refused", len(found.new), found.num_known, len(found.refused))
    return {
        "new": len(found.new),
        "known": found.num_known,
        "refused": [asdict(item) for item in found.refused],
        "file": None if found.path is None else found.path.relative_to(place.root).as_posix(),
        "from_remotes": list(refreshed),
    }


def pools_before(workspace: str) -> dict[str, str]:
    """Return the pool of each prompt as it stands.

    Raises
    ------
    PoolError
        When pools were made before and are gone: a new split might put old prompts elsewhere.
    """
    place, _ = open_workspace(workspace)
    table = pool_table_of(place)
    name = (place.pools / MANIFEST_NAME).relative_to(place.root).as_posix()
    if not table and name in read_ledger(place.root).newest:
        msg = (
            f"The pools must be in place before a night; got none in '{place.pools}', though the ledger knows of some. "
            "Restore them with 'dvc pull' or 'dvc checkout', so that no prompt changes its pool."
        )
        raise PoolError(msg)
    return table


def require_no_move(workspace: str, before: dict[str, str]) -> int:
    """Check that every prompt still lies in its pool; return how many prompts came to have one.

    Raises
    ------
    PoolError
        When one moved; names the first.
    """
    place, _ = open_workspace(workspace)
    after = pool_table_of(place)
    moved = moved_prompts(before, after)
    if moved:
        prompt_id, (old, new) = next(iter(moved.items()))
        msg = (
            f"No prompt may change its pool; '{prompt_id}' went from '{old}' to '{new}', {len(moved)} moved. Restore "
            "its row as it was, or start a new workspace for another split."
        )
        raise PoolError(msg)
    return len(after) - len(before)


def stale_models(workspace: str) -> dict[str, str]:
    """Return the stages that must run again though DVC sees no change, with the reason: exchanged weights."""
    place, config = open_workspace(workspace)
    found = {"warmup": changed_base(place, config)}
    path = place.calibration / MANIFEST_NAME
    found["calibrate"] = changed_judge(read_manifest(path), config) if path.is_file() else ""
    return {stage: reason for stage, reason in found.items() if reason}


def why_calibrate(workspace: str) -> str:
    """Return why calibration is made anew, or why it is used again."""
    place, config = open_workspace(workspace)
    reasons = calibration_changes(place, config)
    if reasons:
        return f"renewed: {'; '.join(reasons)}"
    path = place.calibration / MANIFEST_NAME
    entry = read_ledger(place.root).by_manifest.get(digest_file(path))
    since = "" if entry is None else f" of {entry.ended}"
    return (
        f"reused{since} ({digest_file(path)[:12]}): policy, judge, rubric, data and settings are those it was made of"
    )


def name_of_night(workspace: str, config: PipelineConfig, base: str) -> tuple[str, str | None]:
    """Return the name of tonight's run, and a finished nightly run that already answers the same question, or None.

    A run of these data and settings that an earlier night left before its promotion is gone on with under its own
    name: neither midnight nor a clock that was set makes a night begin anew what is there.
    """
    place, _ = open_workspace(workspace)
    begun = runs_like(place, config, prefix=NIGHTLY)
    if not begun:
        return free_run_name(place, base), None
    done = {name for name, iterations in begun.items() if iterations >= config.train.iterations}
    decided = {entry.facts["version"] for entry in read_ledger(place.root).entries if entry.kind == "promotion"}
    versions = model_versions(Tracker.open(place.root), POLICY_MODEL) if done else []
    answered = done & {run_of(item.checkpoint or "") for item in versions if item.version in decided}
    if answered:
        same = min(answered)
        return same, same
    return max(begun, key=lambda name: begun[name]), None


def serving_policy(workspace: str) -> tuple[int | None, str, str]:
    """Return the champion's version, the policy to compare with, and why it is that one."""
    place, _ = open_workspace(workspace)
    tracker = Tracker.open(place.root)
    champion = next((item for item in model_versions(tracker, POLICY_MODEL) if CHAMPION in item.aliases), None)
    if champion is None or champion.checkpoint is None:
        return None, "warmup", "no champion yet: compared with the starting policy"
    if not (place.root / champion.checkpoint / "policy").is_dir():
        msg = (
            f"The champion's checkpoint must be there; got no '{place.root / champion.checkpoint}' (version "
            f"{champion.version}). Restore it, or roll back with 'rangeline rollback'."
        )
        raise CheckpointError(msg)
    return champion.version, champion.checkpoint, f"compared with champion version {champion.version}"


def judge_accuracy(
    before: EvaluationResult, after: EvaluationResult, paired: dict[str, PairedDifference], max_fall: float
) -> tuple[dict[str, bool | None], str]:
    """Return the gates that evaluation decides, and what it says in words."""
    is_open, words = accuracy_gate(paired.get("all"), max_fall=max_fall)
    old, new = (result.metrics["all"]["missing_share"] for result in (before, after))
    # Unscored answers leave the mean: a policy that is cut off more often could look better than it is.
    steady = None if old is None or new is None else bool(new <= old + _UNSCORED_MARGIN)
    return {"accuracy did not fall": is_open, "unscored answers did not rise": steady}, words


def standing_gates(workspace: str, version: int, serving: int | None) -> dict[str, bool | None]:
    """Return the gates that people decide: nobody took the version back, and the champion is still the compared one.

    Look right before promotion: training and evaluation take hours.
    """
    tracker = Tracker.open(Path(workspace).resolve())
    return {
        "champion is the one compared with": tracker.alias_version(POLICY_MODEL, CHAMPION) == serving,
        "nobody rolled it back": not was_rolled_back(tracker, POLICY_MODEL, version),
    }


def evaluation_digests(*results: EvaluationResult) -> list[str]:
    """Return the digests of the manifests of evaluations."""
    return [digest_file(result.folder / MANIFEST_NAME) for result in results]


def roll_back(workspace: Path, reason: str) -> tuple[int, int]:
    """Put the former champion back, after its whole lineage was verified; return the version that lost and got it.

    Raises
    ------
    BadInputError
        If there is no champion, or it replaced none.
    CheckpointError
        If the former champion's bytes are not what they were.
    BusyError
        If another version was promoted meanwhile.
    """
    root = workspace.resolve()
    tracker = Tracker.open(root)
    version, former = champion_and_former(tracker, POLICY_MODEL)
    _, failures, _ = audit_target.fn(str(root), str(former))
    if failures:
        msg = (
            f"Version {former} must be what it was to serve again; '{failures[0].path}': {failures[0].detail} "
            f"({len(failures)} differ). Version {version} stays champion."
        )
        raise CheckpointError(msg)
    give_back(tracker, POLICY_MODEL, version, former, f"{utc_now()}: {reason}")
    facts = {
        "model": POLICY_MODEL,
        "version": former,
        "alias": CHAMPION,
        "reason": f"rollback of version {version}: {reason}",
    }
    note(root, "promotion", facts=facts)
    logger.warning("policy version %d is champion again, in place of %d: %s", former, version, reason)
    return version, former
