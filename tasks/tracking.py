"""Record runs, metrics, data lineage and model versions; the only module that imports mlflow.

Every call names its run: the active run of mlflow's fluent API belongs to one thread and is absent in submitted tasks.
mlflow is imported when a tracker is opened, after telemetry was switched off.
"""

import hashlib
import json
import math
import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import urlparse
from urllib.request import url2pathname

import numpy as np

from rangeline.errors import BadInputError, ConfigError, LineageError, ToolError
from rangeline.records import ArtifactRef
from tasks.processes import file_lock, silence_telemetry
from tasks.redaction import flatten, hide_password, redact, shorten, tag_key

EXPERIMENT = "rangeline"
CHAMPION, CHALLENGER = "champion", "challenger"
NONFINITE_METRIC = "tracking/nonfinite_count"
FORMER = "rangeline.former_champion"
"""Tag of a champion: the version that had the alias before."""
TIMING = "time/"
"""Begins the names of metrics that hold seconds."""

_MAX_PARAMETERS, _MAX_METRICS = 100, 1000  # what one batch may hold
_STATUSES = ("FINISHED", "FAILED", "KILLED")


@dataclass(frozen=True, slots=True, eq=False)
class Tracker:
    """One experiment of one tracking store; make it with `Tracker.open`."""

    client: Any
    """mlflow's client, bound to `uri`."""
    uri: str
    experiment_id: str

    @classmethod
    def open(cls, workspace: Path, uri: str | None = None) -> "Tracker":
        """Open the tracking store of a workspace, making it on first use (under a lock: migrating takes seconds).

        Parameters
        ----------
        workspace
            Folder that holds `mlruns/`.
        uri
            Tracking store; None means `sqlite:///<workspace>/mlruns/mlflow.db`. The environment variable
            `MLFLOW_TRACKING_URI` wins over both. Artifacts lie in `<workspace>/mlruns/artifacts`, except where a
            server keeps them.

        Raises
        ------
        ToolError
            If the store cannot be reached or its experiment was deleted.
        """
        silence_telemetry()
        home = workspace.resolve() / "mlruns"
        chosen = os.environ.get("MLFLOW_TRACKING_URI") or uri or f"sqlite:///{home / 'mlflow.db'}"
        is_server = chosen.startswith(("http://", "https://"))
        with file_lock(home / ".lock"):
            client, experiment_id = _connect(chosen, None if is_server else (home / "artifacts").as_uri())
        return cls(client, chosen, experiment_id)

    def start_run(
        self, name: str, *, kind: str, parent_run_id: str | None = None, tags: Mapping[str, str] | None = None
    ) -> str:
        """Start a run, nested in its parent where one is given, and return its id.

        The kind (`train`, `iteration`, `evaluate`) becomes the tag `rangeline.kind`; give a tag of your own that
        `find_run` finds again after a crash.
        """
        all_tags = {**(tags or {}), "rangeline.kind": kind}
        if parent_run_id is not None:
            all_tags["mlflow.parentRunId"] = parent_run_id
        return str(self.client.create_run(self.experiment_id, run_name=name, tags=all_tags).info.run_id)

    def find_run(self, tag: str, value: str) -> str | None:
        """Return the newest run that carries a tag value, or None: a resumed training goes on in its own run."""
        if "'" in value or "`" in tag:
            msg = f"'value' must be free of quotes; got {value!r} (tag '{tag}'). Use a plain identifier."
            raise BadInputError(msg)
        found = self.client.search_runs(
            [self.experiment_id], f"tags.`{tag}` = '{value}'", max_results=1, order_by=["attributes.start_time DESC"]
        )
        return str(found[0].info.run_id) if found else None

    def resume_run(self, run_id: str) -> None:
        """Mark an ended or half-written run as running again."""
        self.client.update_run(run_id, status="RUNNING")

    def end_run(self, run_id: str, status: str = "FINISHED") -> None:
        """End a run as FINISHED, FAILED or KILLED; another word raises BadInputError, a failing store ToolError."""
        if status not in _STATUSES:
            msg = f"'status' must be one of {_STATUSES}; got {status!r} (run {run_id}). Use one of them."
            raise BadInputError(msg)
        from mlflow.exceptions import MlflowException

        try:
            self.client.set_terminated(run_id, status)
        except MlflowException as error:
            msg = (
                f"'{hide_password(self.uri)}' must take the end of run {run_id}; got: {error.message} Check the store."
            )
            raise ToolError(msg) from error

    def log_parameters(self, run_id: str, config: Mapping[str, Any]) -> None:
        """Log a nested configuration: short parameters under dotted names, and the whole of it as `config.json`.

        A value over 250 characters is cut and closed with its digest, so that two long values still differ. Values
        under keys that sound like secrets, and passwords inside addresses, are redacted in both forms.

        Raises
        ------
        ConfigError
            If the run already holds another value for one of the parameters; nothing is logged then.
        """
        clean = redact(config)
        wanted = {key: shorten(value) for key, value in flatten(clean)}
        held = self.client.get_run(run_id).data.params
        changed = {k: (held[k], v) for k, v in wanted.items() if k in held and held[k] != v}
        if changed:
            name, (old, new) = next(iter(changed.items()))
            msg = (
                f"'{name}' must stay {old!r} in a run that goes on; got {new!r} (run {run_id}, {len(changed)} changed: "
                f"{', '.join(list(changed)[:5])}). Restore the setting, or start a new run."
            )
            raise ConfigError(msg)
        from mlflow.entities import Param

        for batch in _batches([Param(k, v) for k, v in wanted.items() if k not in held], _MAX_PARAMETERS):
            self.client.log_batch(run_id, params=batch)
        self.log_json(run_id, clean, "config.json")

    def log_metrics(
        self, run_id: str, metrics: Mapping[str, float | None], step: int, *, repeated: bool = False
    ) -> None:
        """Log the finite values; None, NaN and infinities are left out and counted in `tracking/nonfinite_count`.

        An infinite cutoff is normal here, and the store would turn it into 1.8e308: a number that was never measured.
        With `repeated`, for a step that a killed sitting may have logged already, a value that stands there is not
        logged again, and neither is another time that the step took.
        """
        from mlflow.entities import Metric

        finite = {k: float(v) for k, v in metrics.items() if v is not None and math.isfinite(v)}
        now = int(time.time() * 1000)
        rows = [Metric(key, value, now, step) for key, value in finite.items()]
        rows.append(Metric(NONFINITE_METRIC, float(len(metrics) - len(finite)), now, step))
        if repeated:
            rows = [row for row in rows if not self._stands(run_id, row)]
        for batch in _batches(rows, _MAX_METRICS):
            self.client.log_batch(run_id, metrics=batch)

    def _stands(self, run_id: str, row: Any) -> bool:
        points = [point for point in self.client.get_metric_history(run_id, row.key) if point.step == row.step]
        return any(point.value == row.value or row.key.startswith(TIMING) for point in points)

    def log_inputs(self, run_id: str, refs: Sequence[ArtifactRef], context: str) -> None:
        """Log what a run read, and for what: name and source are the path, the digest is the md5 (36 fit at most)."""
        from mlflow.entities import Dataset, DatasetInput, InputTag

        inputs = []
        for ref in refs:
            source, profile = json.dumps({"uri": ref.path}), json.dumps({"num_rows": ref.rows, "size": ref.size})
            dataset = Dataset(ref.path, ref.md5, "local", source, profile=profile)
            tags = [InputTag("mlflow.data.context", context), InputTag("sha256", ref.sha256)]
            inputs.append(DatasetInput(dataset, tags))
        self.client.log_inputs(run_id, inputs)

    def log_file(self, run_id: str, path: Path, artifact_path: str | None = None) -> None:
        """Log a file under an artifact folder of the run; None means its root."""
        self.client.log_artifact(run_id, str(path), artifact_path)

    def local_artifacts(self, run_id: str, root: Path) -> list[Path]:
        """Return the run's artifacts that lie in a workspace, in order; none where a server keeps them."""
        place = urlparse(self.client.get_run(run_id).info.artifact_uri)
        folder = Path(url2pathname(place.path))
        if place.scheme not in ("", "file") or not folder.resolve().is_relative_to(root.resolve()):
            return []
        return sorted(path for path in folder.rglob("*") if path.is_file())

    def log_json(self, run_id: str, content: Mapping[str, Any], artifact_file: str) -> None:
        """Log a mapping as a JSON artifact under the given name."""
        self.client.log_dict(run_id, dict(content), artifact_file)

    def register(self, name: str, *, run_id: str, reference: Mapping[str, Any], files: Sequence[Path] = ()) -> int:
        """Register a model version by reference and return its number.

        What is stored is `reference.json` (where the checkpoint lies, and its hashes; each leaf becomes a tag too) and
        the given small files, such as the scorer; the weights stay where they are. Registering the same reference from
        the same run again gives the version that exists, so that a retried task adds none.
        """
        text = json.dumps(reference, sort_keys=True, indent=2)
        folder = f"registered/{name}/{hashlib.sha256(text.encode()).hexdigest()[:16]}"
        source = f"{self.client.get_run(run_id).info.artifact_uri}/{folder}"
        for version in self.client.search_model_versions(f"name = '{name}'"):
            if version.source == source:
                return int(version.version)
        with tempfile.TemporaryDirectory() as scratch:
            path = Path(scratch) / "reference.json"
            path.write_text(text + "\n", encoding="utf-8")
            for item in (path, *files):
                self.log_file(run_id, item, folder)
        if not self.client.search_registered_models(f"name = '{name}'"):
            self.client.create_registered_model(name)
        tags = {tag_key(key): shorten(value) for key, value in flatten(reference)}
        return int(self.client.create_model_version(name, source, run_id, tags=tags).version)

    def set_alias(self, name: str, alias: str, version: int) -> None:
        """Let an alias point to a version, and to no other."""
        self.client.set_registered_model_alias(name, alias, str(version))

    def promote(self, name: str, version: int, gates: Mapping[str, bool | None]) -> str:
        """Give a version the alias `champion` if every gate is open, else `challenger`; return the alias.

        An undefined gate (None) is a failure, and so is having no gate at all. The tag `rangeline.failed_gates` names
        what failed. The champion so far keeps its alias when a gate fails; when none does, the tag
        `rangeline.former_champion` of the new one names it.
        """
        failed = sorted(gate for gate, result in gates.items() if not _is_true(result))
        if not gates:
            failed = ["no gate was checked"]
        alias = CHALLENGER if failed else CHAMPION
        former = self.alias_version(name, CHAMPION)
        if alias == CHAMPION and former not in (None, version):
            self.client.set_model_version_tag(name, str(version), FORMER, str(former))
        self.client.set_model_version_tag(name, str(version), "rangeline.failed_gates", ", ".join(failed) or "none")
        self.set_alias(name, alias, version)
        return alias

    def alias_version(self, name: str, alias: str) -> int | None:
        """Return the version that an alias points to; None where there is no such model or alias."""
        found = self.client.search_registered_models(f"name = '{name}'")
        version = found[0].aliases.get(alias) if found else None
        return None if version is None else int(version)

    def find_version(self, name: str, version_or_alias: str | int) -> dict[str, Any]:
        """Return `name`, `version`, `aliases`, `run_id`, `source`, `tags` and `reference` of a version, for the audit.

        Raises
        ------
        BadInputError
            If there is no such model, version or alias.
        LineageError
            If what it refers to cannot be read.
        """
        from mlflow.artifacts import load_dict
        from mlflow.exceptions import MlflowException

        wanted = str(version_or_alias)
        get = self.client.get_model_version if wanted.isdigit() else self.client.get_model_version_by_alias
        try:
            found = get(name, wanted)
        except MlflowException as error:
            msg = f"'{name}' must have a version or alias '{wanted}'; got {error.message} (in the registry). List them."
            raise BadInputError(msg) from error
        try:
            reference = load_dict(f"{found.source}/reference.json")
        except (MlflowException, ValueError, OSError) as error:
            msg = (
                f"Version {found.version} of '{name}' must have a readable reference; got {error} "
                f"({found.source}/reference.json). Restore the file, or register the checkpoint again."
            )
            raise LineageError(msg) from error
        return {
            "name": name,
            "version": int(found.version),
            "aliases": sorted(found.aliases),
            "run_id": found.run_id,
            "source": found.source,
            "tags": dict(found.tags),
            "reference": reference,
        }


def _connect(uri: str, artifact_location: str | None) -> tuple[Any, str]:
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    try:
        client = MlflowClient(uri)
        found = client.get_experiment_by_name(EXPERIMENT)
        experiment_id = found.experiment_id if found else client.create_experiment(EXPERIMENT, artifact_location)
    except MlflowException as error:
        msg = f"'{uri}' must be a tracking store; got: {error.message} Check MLFLOW_TRACKING_URI."
        # The cause repeats the address in full, password included: it is not chained.
        raise ToolError(hide_password(msg)) from None
    if found and found.lifecycle_stage != "active":
        msg = (
            f"'{EXPERIMENT}' must be an active experiment; got {found.lifecycle_stage} (in {hide_password(uri)}). "
            f"Run `mlflow experiments restore --experiment-id {experiment_id}`."
        )
        raise ToolError(msg)
    return client, str(experiment_id)


def _is_true(result: bool | np.bool_ | None) -> bool:
    # A NaN is true to Python: only a real truth value opens a gate.
    return isinstance(result, bool | np.bool_) and bool(result)


def _batches(items: Sequence[Any], size: int) -> Iterator[list[Any]]:
    rest = iter(items)
    while batch := list(islice(rest, size)):
        yield batch
