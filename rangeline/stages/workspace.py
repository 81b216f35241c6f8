"""A workspace: the folder that holds the settings, data, models and runs of one project, and how one is chosen.

Settings that the versioned data stages read must be those of the workspace's own `params.yaml`, or DVC could not
tell which data they made. So `--config` or `--set` with other values of these runs in a workspace of its own below
`workspaces/`, which holds its own `params.yaml`, `dvc.yaml` and copies of the files it reads.
"""

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from rangeline.config import (
    VERSIONED_SECTIONS,
    PipelineConfig,
    build_config,
    merge,
    read_settings,
)
from rangeline.errors import ConfigError
from rangeline.lineage import atomic_write, digest_file, digest_json
from rangeline.stages.setting_layers import setting_layers

PROJECT_HOME = Path(__file__).resolve().parents[2]
"""Folder of the project's own dvc.yaml, rubrics and flows."""


@dataclass(frozen=True, slots=True)
class Workspace:
    """Places inside one workspace folder."""

    root: Path

    @property
    def params(self) -> Path:
        """Settings."""
        return self.root / "params.yaml"

    @property
    def locks(self) -> Path:
        """Locks of this machine's processes; what they guard lies elsewhere."""
        return self.root / ".rangeline" / "locks"

    @property
    def training_lock(self) -> Path:
        """Held by the one training that is at work here."""
        return self.locks / "training.lock"

    @property
    def generated(self) -> Path:
        """Problems made by generators."""
        return self.root / "data" / "generated"

    @property
    def world(self) -> Path:
        """The hidden order of a synthetic world: for the stages that make its prompts, judge it or look behind it."""
        return self.generated / "world.json"

    @property
    def raw(self) -> Path:
        """Files that a person put in."""
        return self.root / "data" / "raw"

    @property
    def arrived(self) -> Path:
        """What nights took in from the inbox."""
        return self.raw / "arrived"

    @property
    def prompts(self) -> Path:
        """Checked prompts."""
        return self.root / "data" / "prompts"

    @property
    def pools(self) -> Path:
        """The disjoint pools."""
        return self.root / "data" / "pools"

    @property
    def warmup(self) -> Path:
        """The starting policy."""
        return self.root / "models" / "warmup"

    @property
    def calibration(self) -> Path:
        """Judged source and calibration pools, scorer and scale."""
        return self.root / "data" / "calibration"

    @property
    def anchors(self) -> Path:
        """Anchors of prompts, with their representations."""
        return self.root / "data" / "anchors"

    @property
    def metric_head(self) -> Path:
        """The projection that contrasts rollouts with anchors."""
        return self.root / "data" / "metric_head"

    @property
    def anchor_cache(self) -> Path:
        """Shards of anchors that are made but not yet put together."""
        return self.root / ".rangeline" / "anchors"

    @property
    def runs(self) -> Path:
        """Training runs."""
        return self.root / "runs"

    @property
    def verdicts(self) -> Path:
        """Cached judge replies."""
        return self.root / ".rangeline" / "verdicts.sqlite"

    def run(self, name: str) -> Path:
        """Return a run's folder.

        Raises
        ------
        ConfigError
            When the name could leave the runs folder.
        """
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}", name):
            msg = f"Run name must be letters, digits, '.', '_' or '-', at most 80; got '{name:.100}'."
            raise ConfigError(msg)
        return self.runs / name


def model_cache() -> Path:
    """Return the folder of converted models: RANGELINE_CACHE, else the user's cache folder."""
    if chosen := os.environ.get("RANGELINE_CACHE"):
        return Path(chosen) / "models"
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "rangeline" / "models"


def data_remote() -> Path:
    """Return the folder of the default DVC remote: RANGELINE_DVC_REMOTE, else the user's data folder."""
    if chosen := os.environ.get("RANGELINE_DVC_REMOTE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_DATA_HOME", Path.home() / ".local" / "share")) / "rangeline" / "dvc"


def open_workspace(root: Path | str) -> tuple[Workspace, PipelineConfig]:
    """Open a workspace folder and read its settings.

    Raises
    ------
    ConfigError
        When the folder has no usable `params.yaml`.
    """
    workspace = Workspace(Path(root).resolve())
    return workspace, build_config(read_settings(workspace.params), source=str(workspace.params))


def require_named_settings(workspace: Workspace) -> None:
    """Check that `params.yaml` spells out every versioned setting, since DVC tracks only what stands there.

    Raises
    ------
    ConfigError
        For the first that is not named; says its default.
    """
    values = read_settings(workspace.params)
    defaults = PipelineConfig().model_dump(mode="json", include=set(VERSIONED_SECTIONS))
    for name, default in defaults.items():
        for key in default if isinstance(default, dict) else [None]:
            section = values.get(name)
            if name not in values or (key is not None and key not in (section or {})):
                full, value = (name, default) if key is None else (f"{name}.{key}", default[key])
                msg = f"'{full}' must stand in '{workspace.params}', so that DVC tracks it; add '{full}: {value}'."
                raise ConfigError(msg)


def choose_workspace(
    root: Path, *, config_file: Path | None, assignments: Sequence[str], environ: Mapping[str, str] = os.environ
) -> tuple[Workspace, PipelineConfig]:
    """Lay a settings file, `RANGELINE_POLICY` and assignments over `params.yaml`, and choose the workspace for them.

    Parameters
    ----------
    root
        Workspace whose `params.yaml` is the base.
    config_file
        Further settings; its relative data files and rubric are looked up beside it.
    assignments
        `a.b=c` texts, strongest.
    environ
        Where RANGELINE_POLICY is looked up.

    Returns
    -------
    tuple
        The workspace and its configuration. It is `root` itself unless a versioned setting differs.

    Raises
    ------
    ConfigError
        For an unknown or wrong setting, or a data file that does not exist.
    """
    base, alone, over = setting_layers(root, config_file, assignments, environ)
    source = str(config_file or root / "params.yaml")
    config = build_config(merge(alone, over), source=source)
    if _same_data(config, build_config(base, source=str(root / "params.yaml"))):
        return Workspace(root.resolve()), config
    # What no data stage reads is of this command alone: it changes neither the workspace nor its params.yaml.
    values = merge(alone, {key: value for key, value in over.items() if key in VERSIONED_SECTIONS})
    name = config_file.stem if config_file else "set"
    if not _same_data(config, build_config(alone, source=source)):
        # The file alone does not say which data these are: another --set of them is another workspace.
        name = f"{name}-{digest_json(values)[:8]}"
    if not name.strip("."):
        msg = f"Settings file must have a name to call its workspace by; got '{config_file}'. Rename it."
        raise ConfigError(msg)
    workspace = Workspace((root / "workspaces" / name).resolve())
    beside = (config_file.parent if config_file else root, root, PROJECT_HOME)
    filled = fill_workspace(workspace, values, beside)
    free = {key: value for key, value in over.items() if key not in VERSIONED_SECTIONS}
    return workspace, build_config(merge(filled.model_dump(mode="json"), free), source=source)


def _same_data(one: PipelineConfig, other: PipelineConfig) -> bool:
    return all(getattr(one, name) == getattr(other, name) for name in VERSIONED_SECTIONS)


def find_file(name: str, folders: Sequence[Path]) -> Path:
    """Return the first file of that name beside one of the folders.

    Raises
    ------
    ConfigError
        There is none.
    """
    for folder in folders:
        if (folder / name).is_file():
            return folder / name
    msg = f"File '{name}' must exist; got none in {', '.join(str(folder) for folder in folders)}. Correct its path."
    raise ConfigError(msg)


def _copy_if_changed(source: Path, target: Path) -> None:
    if source.resolve() == target.resolve():
        return
    if not target.is_file() or digest_file(source) != digest_file(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)


def _copy_conditions(name: str, workspace: Workspace, beside: Sequence[Path]) -> None:
    """Copy the nearest folder of condition files; a workspace without one is made all the same, and told later."""
    found = next((folder / name for folder in beside if (folder / name).is_dir()), None)
    for source in sorted(found.glob("*.yaml")) if found else ():
        _copy_if_changed(source, workspace.root / name / source.name)


def fill_workspace(workspace: Workspace, values: Mapping[str, Any], beside: Sequence[Path]) -> PipelineConfig:
    """Write a derived workspace: settings, pipeline file, and copies of the files that it reads.

    Parameters
    ----------
    workspace
        Where it goes.
    values
        All settings, as they were before any default was filled in.
    beside
        Folders in which relative data files and the rubric are looked up, first to last.

    Returns
    -------
    PipelineConfig
        Its settings, files named by their copies.

    Raises
    ------
    ConfigError
        A setting is wrong, or a file does not exist.
    """
    config = build_config(values, source=str(workspace.params))
    files: list[str] = []
    for name in config.data.files:
        found = find_file(name, beside)
        if f"data/raw/{found.name}" in files:
            msg = f"'data.files' must have distinct names; got '{found.name}' twice. Rename one of the files."
            raise ConfigError(msg)
        _copy_if_changed(found, workspace.raw / found.name)
        files.append(f"data/raw/{found.name}")
    rubric = find_file(config.judge.rubric, beside)
    _copy_if_changed(rubric, workspace.root / "rubrics" / rubric.name)
    _copy_conditions(config.anchors.conditions, workspace, beside)
    settings = merge(config.model_dump(mode="json"), {"data": {"files": files}})
    settings["judge"]["rubric"] = f"rubrics/{rubric.name}"
    workspace.raw.mkdir(parents=True, exist_ok=True)
    _copy_if_changed(PROJECT_HOME / "dvc.yaml", workspace.root / "dvc.yaml")
    text = "# Written by rangeline from --config and --set; edit those and run again.\n" + yaml.safe_dump(
        settings, sort_keys=False, allow_unicode=True
    )
    if not workspace.params.is_file() or workspace.params.read_text(encoding="utf-8") != text:
        atomic_write(workspace.params, text)
    return build_config(settings, source=str(workspace.params))
