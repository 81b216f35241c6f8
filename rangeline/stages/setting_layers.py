"""What settings are made of: `params.yaml`, a file over it, environment and assignments over both."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rangeline.config import PipelineConfig, build_config, merge, parse_assignment, read_settings


def settings_over(
    root: Path, config_file: Path | None, assignments: Sequence[str], environ: Mapping[str, str] = os.environ
) -> PipelineConfig:
    """Return the settings that a command would have, and make no workspace for them.

    Parameters
    ----------
    root, config_file, assignments, environ
        As for `setting_layers`.

    Raises
    ------
    ConfigError
        For an unknown or wrong setting.
    """
    _, alone, over = setting_layers(root, config_file, assignments, environ)
    return build_config(merge(alone, over), source=str(config_file or root / "params.yaml"))


def setting_layers(
    root: Path, config_file: Path | None, assignments: Sequence[str], environ: Mapping[str, str]
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Return `params.yaml`, the same under a settings file, and what environment and assignments lay over both.

    Parameters
    ----------
    root
        Workspace whose `params.yaml` is the base.
    config_file
        Further settings.
    assignments
        `a.b=c` texts, strongest.
    environ
        Where RANGELINE_POLICY is looked up.

    Raises
    ------
    ConfigError
        For a file or an assignment that cannot be read.
    """
    base = read_settings(root / "params.yaml")
    alone = merge(base, read_settings(config_file)) if config_file else dict(base)
    over: dict[str, Any] = {}
    if policy := environ.get("RANGELINE_POLICY"):
        over = {"policy": {"model": policy}}
    for text in assignments:
        over = merge(over, parse_assignment(text))
    return base, alone, over
