"""Tracking tasks of a training run: a parent run a flow, a child run an iteration, models by alias through gates."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from rangeline.errors import ToolError
from rangeline.lineage import MANIFEST_NAME, artifact_ref, digest_json, read_manifest
from rangeline.stages.benchmarking import PolicyResults
from rangeline.stages.run import RunFolder, read_run
from rangeline.stages.session import TrainingSession
from rangeline.stages.workspace import Workspace
from tasks.champions import POLICY_MODEL as POLICY_MODEL
from tasks.champions import SCORER_MODEL as SCORER_MODEL
from tasks.champions import aliased_checkpoints
from tasks.notes import flow_started, note, note_stage, seconds_ago
from tasks.reporting import logger, show_markdown, show_table
from tasks.tracked_numbers import evaluation_numbers
from tasks.tracking import TIMING, Tracker

_CALLING = ("concurrency", "timeout_s", "attempts", "max_wait_s")
"""How a judge's server is called, which changes no answer."""
_BEGUN = "rangeline.begun"
"""Tag of a run whose settings, data sets and scorer are all logged."""
_FAINT_PAIR_WEIGHT = 0.02
"""Below it the pair weights have all but switched the signal off."""


@task(name="start tracking", cache_policy=NO_CACHE, retries=2, retry_delay_seconds=2)
def start_tracking(session: TrainingSession) -> str:
    """Open the run's tracking run, or go on in it; log settings, data sets and the scorer. Return its id."""
    run_id = _tracking_run(session)
    # Once a sitting, the libraries' own start included: no part of the first iteration.
    logger.info("tracking started in %.1f s", session.lap())
    return run_id


def tracked_as(folder: RunFolder) -> str:
    """Return the value of the tag `rangeline.run` of a run: its name and what it computes."""
    return f"{folder.name}-{read_run(folder)['identity'][:16]}"


def _tracking_run(session: TrainingSession) -> str:
    tracker, folder, place = Tracker.open(session.workspace.root), session.opened.folder, session.workspace
    key = tracked_as(folder)
    run_id = tracker.find_run("rangeline.run", key)
    if run_id is not None:
        tracker.resume_run(run_id)
        if _BEGUN in tracker.client.get_run(run_id).data.tags:
            return run_id
    else:
        run_id = tracker.start_run(folder.name, kind="train", tags={"rangeline.run": key})
    # These may differ between two sittings of one run; parameters may not.
    free: Any = {
        "train": {
            "iterations",
            "on_alarm",
            "keep_checkpoints",
            "keep_best",
            "max_silent_iterations",
            "checkpoint_every",
            "evaluate_every",
        },
        "coverage": True,
        "overlap": True,
        "evaluate": True,
        "processes": True,
        "rollout": {"url", "transfer", "tolerance", "extra", "max_model_len"},
        "judge": {"url": True, "api_key_env": True, "budget": True, "cache": True, "server": {*_CALLING}},
    }
    tracker.log_parameters(run_id, session.config.model_dump(mode="json", exclude=free))
    for stage in ("pools", *session.plan.stages):
        refs = read_manifest(getattr(place, stage) / MANIFEST_NAME).outputs
        tracker.log_inputs(run_id, refs, context=stage)
    if session.plan.needs_judge:
        _register_scorer(tracker, run_id, place)
    files = [folder.root / "run.json", *tracker.local_artifacts(run_id, place.root)]
    note(place.root, "run", files=files, started=flow_started(), mlflow_run_id=run_id)
    # Last: a sitting that was killed before it has logged part of the above, and the next one logs the rest.
    tracker.client.set_tag(run_id, _BEGUN, "true")
    return run_id


def _register_scorer(tracker: Tracker, run_id: str, place: Workspace) -> None:
    path = place.calibration / "scorer.ubj"
    reference = {
        "scorer": {"path": "data/calibration/scorer.ubj", "sha256": artifact_ref(path, place.root).sha256},
        "manifest": _manifest_reference(place.calibration / MANIFEST_NAME, place.root),
    }
    version = tracker.register(SCORER_MODEL, run_id=run_id, reference=reference, files=[path])
    tracker.set_alias(SCORER_MODEL, "challenger", version)


def _manifest_reference(path: Path, root: Path) -> dict[str, str]:
    ref = artifact_ref(path, root)
    return {"path": ref.path, "sha256": ref.sha256}


@task(name="record iteration", cache_policy=NO_CACHE, retries=2, retry_delay_seconds=2)
def record_iteration(session: TrainingSession, number: int, run_id: str) -> dict[str, Any]:
    """Track one iteration as a child run: finite metrics and its data sets. Return the metrics."""
    tracker = Tracker.open(session.workspace.root)
    iteration = session.iteration(number)
    metrics = iteration.metrics()
    _add_whole_time(session)
    timings = {f"{TIMING}{name}": seconds for name, seconds in session.timings.items()}
    parts = {f"{TIMING}update_{name}_s": seconds for name, seconds in session.update_parts.items()}
    began = seconds_ago(session.timings.get("iteration_s", 0.0))
    tag = f"{run_id}-{number}"
    child = tracker.find_run("rangeline.iteration", tag)
    # What a killed sitting had logged of this iteration, or of its first making, stands already.
    repeated = child is not None
    child = child or tracker.start_run(
        f"iteration {number}", kind="iteration", parent_run_id=run_id, tags={"rangeline.iteration": tag}
    )
    numbers = {name: value for name, value in {**metrics, **timings, **parts}.items() if not isinstance(value, str)}
    for target in (child, run_id):
        tracker.log_metrics(target, numbers, step=number, repeated=repeated)
    for row in iteration.steps():
        # Steps are counted over the whole run: the axis of these is not the iteration.
        named = {f"step/{name}": value for name, value in row.items() if name != "step"}
        tracker.log_metrics(run_id, named, step=int(row["step"]), repeated=repeated)
    if session.config.train.completions:
        for name in ("completions.parquet", "completions.html"):
            tracker.log_file(child, iteration.folder / name)
    tracker.log_inputs(child, read_manifest(iteration.folder / MANIFEST_NAME).outputs[:3], context="iteration")
    tracker.log_file(child, iteration.folder / MANIFEST_NAME)
    tracker.end_run(child)
    iteration.write_timings({**timings, **parts})
    # Not before: a retry of this task must write the same seconds.
    session.timings.clear()
    session.update_parts = {}
    beside = (path for path in (iteration.folder / "expectations").rglob("*") if path.is_file())
    note(
        session.workspace.root,
        "iteration",
        manifest=iteration.folder / MANIFEST_NAME,
        files=[
            iteration.folder / "timings.json",
            *beside,
            *session.opened.folder.root.glob("sittings/*.json"),
            *tracker.local_artifacts(child, session.workspace.root),
        ],
        started=began,
        mlflow_run_id=child,
    )
    row = {"iteration": number, **{name: metrics[name] for name in ("coverage/empirical", "interval/mean_width")}}
    show_table(f"iterations-{session.opened.folder.name}", [row], f"Iteration {number}")
    if session.plan.needs_judge:
        logger.info(
            "iteration %d: coverage %s, audit accuracy %s, width %s, sign flips %s",
            number,
            *(_short(metrics[name]) for name in ("coverage/empirical", "train/accuracy", "interval/mean_width")),
            metrics["advantage/sign_flips"],
        )
    else:
        shown = ("train/accuracy", "reward/mean_center", "reward/missing_share", "advantage/active_share")
        logger.info(
            "iteration %d by %s: audit accuracy %s, mean reward %s, missing %s, active %s; coverage not measured",
            number,
            "+".join(session.plan.names),
            *(_short(metrics[name]) for name in shown),
        )
    if any(value for name, value in metrics.items() if name.endswith("drift_alarm")):
        logger.warning(
            "iteration %d: the rollouts have drifted from those the metric head was trained on (above "
            "reward.anchor_contrast.max_drift); its scores are no longer asked of what it knows",
            number,
        )
    weight = metrics["advantage/median_pair_weight"]
    if weight is not None and weight < _FAINT_PAIR_WEIGHT:
        logger.warning(
            "iteration %d: half of all pairs weigh less than %.4f; raise advantages.reference_width", number, weight
        )
    return metrics


def _add_whole_time(session: TrainingSession) -> None:
    """Add the seconds since the iteration before, and those that no step of the library took: tasks and tracking.

    Nothing is added where an iteration was made by a sitting that was killed, since nobody knows how long it took, nor
    when this task is tried again.
    """
    times = session.timings
    if not times or "iteration_s" in times:
        return
    # The gate is the expectations' own time; all others are the library's.
    own = math.fsum(seconds for name, seconds in times.items() if name != "gate_s")
    whole = session.lap()
    times |= {"iteration_s": whole, "orchestration_s": whole - own}


def unrecorded(session: TrainingSession) -> list[int]:
    """Return the finished iterations whose sitting was killed before it had tracked them."""
    done = range(1, session.opened.done + 1)
    return [number for number in done if not (session.iteration(number).folder / "timings.json").is_file()]


def _short(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


@task(name="register policy", cache_policy=NO_CACHE, retries=2, retry_delay_seconds=2)
def register_policy(session: TrainingSession, run_id: str, number: int) -> int:
    """Register the run's newest policy by reference to its checkpoint, as challenger; return the version."""
    place, folder, stages = session.workspace, session.opened.folder, session.plan.stages
    reference = {
        "checkpoint": {
            "path": folder.checkpoint(number).relative_to(place.root).as_posix(),
            "sha256": artifact_ref(folder.checkpoint(number) / "COMPLETE", place.root).sha256,
        },
        "manifest": _manifest_reference(folder.iteration(number) / MANIFEST_NAME, place.root),
        "pools": _manifest_reference(place.pools / MANIFEST_NAME, place.root),
        **{stage: _manifest_reference(getattr(place, stage) / MANIFEST_NAME, place.root) for stage in stages},
    }
    tracker = Tracker.open(place.root)
    version = tracker.register(POLICY_MODEL, run_id=run_id, reference=reference)
    tracker.set_alias(POLICY_MODEL, "challenger", version)
    files = tracker.local_artifacts(run_id, place.root)
    note(
        place.root, "registration", files=files, mlflow_run_id=run_id, facts={"model": POLICY_MODEL, "version": version}
    )
    return version


@task(name="end tracking", cache_policy=NO_CACHE)
def end_tracking(session: TrainingSession, run_id: str, status: str) -> None:
    """Close the run's tracking run as FINISHED, FAILED or KILLED.

    A store that cannot be written to after a failure must not hide that failure: it is told as a warning.
    """
    try:
        Tracker.open(session.workspace.root).end_run(run_id, status)
    except ToolError as error:
        if status == "FINISHED":
            raise
        logger.warning("the tracking run %s stays open: %s", run_id, error)


def referenced_checkpoints(session: TrainingSession) -> dict[str, str]:
    """Return the checkpoints of the run that aliases of the registered policy refer to, by the checkpoint's name."""
    home = session.opened.folder.root.relative_to(session.workspace.root) / "checkpoints"
    named = aliased_checkpoints(Tracker.open(session.workspace.root), POLICY_MODEL)
    return {Path(path).name: alias for alias, path in named.items() if Path(path).parent == home}


@task(name="promote policy", cache_policy=NO_CACHE)
def promote_policy(
    workspace_root: str, version: int, gates: dict[str, bool | None], decided_by: Sequence[str] = ()
) -> str:
    """Make a policy version champion if every gate is open, else leave it challenger; return the alias.

    `decided_by` are the digests of the manifests of the evaluations that the gates looked at.
    """
    alias = Tracker.open(Path(workspace_root)).promote(POLICY_MODEL, version, gates)
    facts = {"model": POLICY_MODEL, "version": version, "alias": alias, "gates": gates, "decided_by": list(decided_by)}
    note(Path(workspace_root).resolve(), "promotion", facts=facts)
    closed = [name for name, value in gates.items() if value is not True]
    logger.info("policy version %d is %s%s", version, alias, f"; closed gates: {', '.join(closed)}" if closed else "")
    return alias


def checkpoint_of(workspace_root: str, version: int) -> str:
    """Return the workspace path of the checkpoint that a policy version stands for."""
    found = Tracker.open(Path(workspace_root)).find_version(POLICY_MODEL, version)
    return str(found["reference"]["checkpoint"]["path"])


@task(name="record evaluation", cache_policy=NO_CACHE, retries=2, retry_delay_seconds=2)
def record_evaluation(workspace_root: str, label: str, folder: str, metrics: dict[str, dict[str, Any]]) -> None:
    """Track one evaluation: accuracy by domain with its interval, and the rows as an artifact."""
    tracker = Tracker.open(Path(workspace_root))
    key = f"{label}-{Path(folder).name}"
    if run_id := tracker.find_run("rangeline.evaluation", key):
        note_stage(Path(workspace_root).resolve(), Path(folder).resolve() / MANIFEST_NAME, mlflow_run_id=run_id)
        return
    run_id = tracker.start_run(f"evaluate {label}", kind="evaluate", tags={"rangeline.evaluation": key})
    tracker.log_metrics(run_id, evaluation_numbers(metrics), step=0)
    place = Path(workspace_root)
    refs = read_manifest(place / folder / MANIFEST_NAME)
    tracker.log_inputs(run_id, refs.inputs, context="evaluation")
    tracker.log_file(run_id, place / folder / "samples.parquet")
    tracker.end_run(run_id)
    copies = tracker.local_artifacts(run_id, place)
    note_stage(place.resolve(), (place / folder).resolve() / MANIFEST_NAME, mlflow_run_id=run_id, copies=copies)
    rows = [
        {"domain": domain, **values["average"], "missing_share": values["missing_share"]}
        for domain, values in metrics.items()
    ]
    show_table(f"evaluation-{label}", rows, f"Evaluation of {label}: mean over prompts, with clustered intervals")


@task(name="record benchmarks", cache_policy=NO_CACHE, retries=2, retry_delay_seconds=2)
def record_benchmarks(workspace_root: str, results: PolicyResults, asked: dict[str, Any], table: Path) -> None:
    """Track one policy on its benchmarks: values with intervals, shares, rows and the table as artifacts."""
    show_markdown(f"benchmarks-{results.label}", table.read_text(encoding="utf-8"), f"Evaluation of {results.label}")
    tracker = Tracker.open(Path(workspace_root))
    key = digest_json({"metrics": {name: item.metrics for name, item in results.results.items()}, "asked": asked})
    if tracker.find_run("rangeline.benchmarks", key):
        return
    tags = {"rangeline.benchmarks": key, "rangeline.policy": results.label}
    run_id = tracker.start_run(f"benchmarks {results.label}", kind="evaluate", tags=tags)
    tracker.log_parameters(run_id, {**asked, "policy": results.label, "unavailable": results.unavailable})
    for name, item in results.results.items():
        flat = {f"{name}/{part}": item.metrics[part] for part in item.metrics if part.endswith("_share")}
        for measure, estimate in item.metrics["estimates"].items():
            for part in ("value", "lower", "upper", "num_prompts"):
                flat[f"{name}/{_metric_name(measure)}/{part}"] = estimate[part]
        tracker.log_metrics(run_id, flat, step=0)
        tracker.log_inputs(run_id, read_manifest(item.folder / MANIFEST_NAME).outputs[:1], context="benchmark")
        # Completions repeat their questions, and those of a private benchmark may be copied nowhere.
        for file in ("metrics.json",) if item.metrics["private"] else ("metrics.json", "samples.parquet"):
            tracker.log_file(run_id, item.folder / file, name)
    for path in (table, table.with_suffix(".json")):
        tracker.log_file(run_id, path)
    tracker.end_run(run_id)


def _metric_name(measure: str) -> str:
    """Return a measure's name in letters that the tracking store takes: `g-pass@2(0.5)` is `g-pass_at_2_tau_0.5`."""
    return measure.replace("@", "_at_").replace("(", "_tau_").replace(")", "")
