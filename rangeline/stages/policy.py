"""The policy of a training run, in this process or in several, with or without adapters."""

from pathlib import Path
from typing import cast

from rangeline.config import PipelineConfig
from rangeline.policy.adapter import LoraSettings
from rangeline.policy.processes import Policy, PolicyProcesses
from rangeline.policy.worker import Placement, SamplerDtype
from rangeline.rollout.pretrained import resolve_dtype
from rangeline.stages.warmup import load_worker, update_settings
from rangeline.stages.workspace import PROJECT_HOME, Workspace, find_file, model_cache


def open_policy(workspace: Workspace, config: PipelineConfig) -> Policy:
    """Load the warmed-up policy the way the settings ask for.

    Raises
    ------
    ConfigError
        When the processes' configuration cannot be used.
    ModelLoadError
        When the policy cannot be loaded.
    ToolError
        When the processes cannot be started.
    """
    folder, processes = str(workspace.warmup / "policy"), config.processes
    lora = None
    if config.lora.rank:
        lora = LoraSettings(rank=config.lora.rank, alpha=config.lora.alpha, targets=config.lora.targets)
    placement = Placement(num_processes=processes.count, lora=lora)
    accelerate_config = _accelerate_config(workspace, processes.accelerate_config)
    if processes.count == 1 and accelerate_config is None:
        return load_worker(config, folder, placement=placement)
    return PolicyProcesses.load(
        folder,
        settings=update_settings(config),
        placement=placement,
        accelerate_config=accelerate_config,
        cache_dir=model_cache(),
        sampler_dtype=cast(SamplerDtype, resolve_dtype(config.policy.sampler_dtype)),
        prompts_per_batch=config.policy.prompts_per_batch,
        trust_remote_code=config.policy.trust_remote_code,
        seed=config.seed,
    )


def _accelerate_config(workspace: Workspace, name: str | None) -> Path | None:
    return None if name is None else find_file(name, (workspace.root, PROJECT_HOME))
