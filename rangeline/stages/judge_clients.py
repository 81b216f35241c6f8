"""Open the judge that the settings name: a model in this process, or one behind a server."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from rangeline.errors import ConfigError, ModelLoadError
from rangeline.judge.budget import Budget, Price
from rangeline.judge.client import JudgeClient
from rangeline.judge.http_calls import Manners
from rangeline.judge.model_writer import WritingJudge
from rangeline.judge.option_scorer import ChoiceJudge
from rangeline.judge.rubric import Rubric, parse_rubric
from rangeline.judge.server_client import ServerJudge, ServerSettings
from rangeline.judge_config import JudgeConfig
from rangeline.rollout.pretrained import Pretrained, load_pretrained
from rangeline.stages.tables import read_table
from rangeline.stages.workspace import Workspace, model_cache

VERDICTS_FILE = "verdicts.parquet"
"""Verdicts that a versioned calibration keeps."""


def to_accelerator(model: Any) -> Any:
    """Move a model to the accelerator where there is one."""
    return model.to(torch.accelerator.current_accelerator()) if torch.accelerator.is_available() else model


def read_rubric(path: Path, name: str) -> Rubric:
    """Read a rubric file.

    Raises
    ------
    ModelLoadError
        When it cannot be read, or is no rubric.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        msg = f"Rubric '{path}' must be a readable text file; got {error}. Set judge.rubric to an existing file."
        raise ModelLoadError(msg) from error
    return parse_rubric(text, source=name)


def verdict_store(workspace: Workspace, config: JudgeConfig) -> Path:
    """Return the file of verdicts, its folder made: the workspace's, or one that several share."""
    path = workspace.verdicts if config.cache is None else workspace.root / config.cache
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def read_verdicts(folder: Path) -> dict[str, tuple[float, ...]]:
    """Return the verdicts that a calibration keeps; none where it keeps none."""
    path = folder / VERDICTS_FILE
    if not path.is_file():
        return {}
    table = read_table(path)
    return dict(zip(table["key"].to_pylist(), map(tuple, table["values"].to_pylist()), strict=True))


def load_judge_model(config: JudgeConfig, *, trust_remote_code: bool = False) -> Pretrained:
    """Load the model of a judge in this process."""
    pretrained = load_pretrained(
        config.model, dtype=config.dtype, trust_remote_code=trust_remote_code, cache_dir=model_cache()
    )
    to_accelerator(pretrained.model)
    return pretrained


def open_client(
    workspace: Workspace,
    config: JudgeConfig,
    *,
    trust_remote_code: bool = False,
    environ: Mapping[str, str] = os.environ,
) -> JudgeClient:
    """Return the client of a judge that is no synthetic one.

    Parameters
    ----------
    workspace, config
        Whose judge, and which.
    trust_remote_code
        Whether a model in this process may run code that comes with it.
    environ
        Where the server's key is looked up: in no other place, and never in a file.

    Raises
    ------
    ConfigError
        When the judge is synthetic, or the variable that should hold the key is not set.
    ModelLoadError
        When the model cannot be read.
    JudgeError
        When the server cannot be asked.
    """
    if config.is_synthetic:
        msg = "'judge.client' must be model or server to be asked questions; got 'synthetic'. Name a model."
        raise ConfigError(msg)
    if config.client == "server":
        return ServerJudge(server_settings(workspace, config, environ))
    pretrained = load_judge_model(config, trust_remote_code=trust_remote_code)
    if config.ask == "text":
        return WritingJudge(pretrained, max_tokens=config.limits.reply_tokens)
    return ChoiceJudge(pretrained)


def server_settings(workspace: Workspace, config: JudgeConfig, environ: Mapping[str, str]) -> ServerSettings:
    """Return the settings as the client takes them, with the key from the environment."""
    key = environ.get(config.api_key_env) if config.api_key_env else None
    if config.api_key_env and not key:
        msg = (
            f"Environment variable '{config.api_key_env}' must hold the judge's key; got nothing. Set it, or correct "
            "judge.api_key_env, which holds the variable's name and never the key."
        )
        raise ConfigError(msg)
    budget, server = config.budget, config.server
    price = budget.prices.get(config.model)
    return ServerSettings(
        url=config.url or "",
        model=config.model,
        key=key,
        ask=None if config.ask == "auto" else config.ask,
        max_tokens=config.limits.reply_tokens,
        context_tokens=server.context_tokens,
        manners=Manners(
            concurrency=server.concurrency,
            timeout_s=server.timeout_s,
            attempts=server.attempts,
            max_wait_s=server.max_wait_s,
        ),
        budget=Budget(budget.calls, budget.tokens, budget.money),
        price=Price(price.prompt, price.reply) if price else Price(),
        store=verdict_store(workspace, config),
    )
