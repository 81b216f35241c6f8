"""Say whether calibration still stands for what it is used on: the policy, the judge, the rubric, the data.

DVC makes a stage again when a file or setting that it reads changed. It does not see what a model's name stands for:
weights that were exchanged below the same name are found here, by digest.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rangeline.config import PipelineConfig
from rangeline.judge.model_writer import writing_digest
from rangeline.judge.option_scorer import choice_digest
from rangeline.lineage import MANIFEST_NAME, Manifest, digest_file, read_manifest
from rangeline.rollout.fresh_model import PREFIX
from rangeline.rollout.pretrained import model_digest, resolve_dtype
from rangeline.stages.workspace import Workspace, model_cache

_SHOWN = ("sampling", "judge", "calibrate", "seed")
_JUDGE_IDENTITY = ("client", "model", "dtype", "rubric", "ask", "max_missing_share", "limits")
"""What a judge is asked, and which it is; not where it is reached, how patiently, or what it may cost."""


def calibration_changes(workspace: Workspace, config: PipelineConfig) -> tuple[str, ...]:
    """Return why the calibration in place must be made anew, a sentence each; none where it can be used again.

    Parameters
    ----------
    workspace, config
        Pools and starting policy must be those that will be used: look after `prepare` and `warmup`.
    """
    path = workspace.calibration / MANIFEST_NAME
    if not path.is_file():
        return ("there is no calibration yet",)
    manifest = read_manifest(path)
    return (
        *_changed_inputs(workspace, manifest),
        *_changed_policy(workspace, manifest),
        *_changed_settings(manifest.parameters, config),
        *((judge,) if (judge := changed_judge(manifest, config)) else ()),
    )


def changed_base(workspace: Workspace, config: PipelineConfig) -> str:
    """Return a sentence where the base model's weights are not those that warm-up started from; empty otherwise."""
    path = workspace.warmup / MANIFEST_NAME
    if not path.is_file() or config.policy.model.startswith(PREFIX):
        return ""
    recorded = read_manifest(path).facts.get("base_sha256")
    actual = model_digest(config.policy.model, cache_dir=model_cache())
    if recorded in (None, actual):
        return ""
    return f"policy: the weights of '{config.policy.model}' are {actual[:12]}, warm-up started from {recorded[:12]}"


def changed_judge(manifest: Manifest, config: PipelineConfig) -> str:
    """Return a sentence where the judge's weights are not those that calibration asked; empty otherwise.

    A server's weights cannot be seen from here: its canary, asked again at the start of every run, tells.
    """
    if config.judge.is_synthetic or config.judge.client == "server":
        return ""
    recorded = str((manifest.facts.get("judge") or {}).get("digest", ""))
    weights = model_digest(config.judge.model, cache_dir=model_cache())
    dtype = resolve_dtype(config.judge.dtype)
    writes = config.judge.ask == "text"
    actual = (
        writing_digest(weights, dtype, config.judge.limits.reply_tokens) if writes else choice_digest(weights, dtype)
    )
    if recorded == actual:
        return ""
    return f"judge: the weights or precision of '{config.judge.model}' are not those that calibration asked"


def _changed_inputs(workspace: Workspace, manifest: Manifest) -> list[str]:
    found = []
    for ref in manifest.inputs:
        place = workspace.root / ref.path
        if not place.is_file() or digest_file(place) != ref.sha256:
            is_pool = place.is_relative_to(workspace.pools)
            found.append(f"data: pool '{place.stem}' changed" if is_pool else f"rubric: '{ref.path}' changed")
    return found


def _changed_policy(workspace: Workspace, manifest: Manifest) -> list[str]:
    place: Path = workspace.warmup / MANIFEST_NAME
    name = place.relative_to(workspace.root).as_posix()
    recorded = next((ref.sha256 for ref in manifest.parents if ref.path == name), None)
    if place.is_file() and digest_file(place) == recorded:
        return []
    return ["policy: the starting policy is not the one that was calibrated"]


def _changed_settings(recorded: Mapping[str, Any], config: PipelineConfig) -> list[str]:
    now = config.model_dump(mode="json")
    return [f"settings: '{name}' changed" for name in _SHOWN if _identity(name, recorded) != _identity(name, now)]


def _identity(name: str, settings: Mapping[str, Any]) -> Any:
    section = settings.get(name)
    if name != "judge" or not isinstance(section, Mapping):
        return section
    return {key: section.get(key) for key in _JUDGE_IDENTITY}
