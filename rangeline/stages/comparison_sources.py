"""The plan of a comparison of reward sources: made from their names and a workspace's own settings.

Every source trains with the settings of the workspace, at one budget of rollouts; TraPO, which compares with labelled
prompts, is given some. The plan is a file like any other, so that a comparison resumes by it.
"""

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from rangeline.config import VERSIONED_SECTIONS, PipelineConfig, build_config, merge, parse_assignment
from rangeline.errors import ConfigError
from rangeline.lineage import atomic_write, digest_json
from rangeline.rewards.registry import SOURCES
from rangeline.stages.workspace import Workspace

_USUAL = "judge_interval"


def named_sources(text: str) -> tuple[str, ...]:
    """Return the sources that a text names, parted by commas; `all` is every one of them.

    Raises
    ------
    ConfigError
        A name is unknown or given twice, or there is none.

    Examples
    --------
    >>> named_sources("majority, verifier")
    ('majority', 'verifier')
    """
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if names == ("all",):
        return tuple(SOURCES)
    odd = [name for name in names if name not in SOURCES] or [name for name in names if names.count(name) > 1]
    if odd or not names:
        close = difflib.get_close_matches(odd[0], SOURCES, n=1) if odd and odd[0] not in SOURCES else []
        hint = f"Did you mean '{close[0]}'?" if close else "Name each once, parted by commas."
        msg = f"'--rewards' must be all, or some of {', '.join(SOURCES)}; got '{odd[0] if odd else text}'. {hint}"
        raise ConfigError(msg)
    return names


def source_plan(
    names: Sequence[str], config: PipelineConfig, iterations: int | None, assignments: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the plan that compares reward sources on a workspace's own data.

    Parameters
    ----------
    names
        Sources, in the order of the table.
    config
        Settings of the workspace; those that its data depend on stay there.
    iterations
        Iterations of each run; None takes the settings' own.
    assignments
        `a.b=c` texts laid over the settings.

    Raises
    ------
    ConfigError
        An assignment is not valid.
    """
    given: dict[str, Any] = {}
    for text in assignments:
        given = merge(given, parse_assignment(text))
    config = build_config(merge(config.model_dump(mode="json"), given), source="--set")
    labelled = config.train.labelled_prompts or max(1, config.train.prompts_per_iteration // 2)
    over = {"trapo": {"train": {"labelled_prompts": labelled}}}
    settings = config.model_dump(mode="json", exclude=set(VERSIONED_SECTIONS))
    settings["train"] |= {"iterations": iterations or config.train.iterations, "evaluate_every": 0}
    given = merge(given, {"train": {"iterations": settings["train"]["iterations"]}})
    if "anchor_contrast" in names:
        given = merge({"anchors": {"pools": ["policy"]}}, given)  # looks need none, and each costs rollouts
    plan = {
        "description": "Reward sources on the same data, start and settings, at one budget of rollouts an iteration.",
        "settings": merge(settings, given),
        "seeds": [config.seed],
        "methods": [
            {"name": name, "settings": merge({"reward": {"source": name}}, over.get(name, {}))} for name in names
        ],
        "reference": _USUAL if _USUAL in names else names[0],
    }
    return {"name": f"rewards-{digest_json(plan)[:8]}", **plan}


def choose_plan(
    workspace: Workspace,
    config: PipelineConfig,
    *,
    plan: Path | None,
    rewards: str | None,
    iterations: int | None = None,
    assignments: Sequence[str] = (),
) -> Path:
    """Return the plan file to conduct: the one given, or one written for the reward sources that are named.

    Parameters
    ----------
    workspace, config
        Where, and whose settings the sources train with.
    plan
        A plan file; None where sources are named.
    rewards
        Names of sources, or `all`; None where a plan is given.
    iterations
        Iterations of each run; only with `rewards`.
    assignments
        `a.b=c` texts: part of a plan that is written, left for the caller to lay over one that is given.

    Raises
    ------
    ConfigError
        Both or neither are given, a name is unknown, or a plan is asked for other iterations than its own.
    """
    if (plan is None) == (rewards is None):
        got = "neither" if plan is None else f"both '{plan}' and --rewards {rewards}"
        msg = f"'compare' must have a plan file or --rewards; got {got}. Give one, such as --rewards all."
        raise ConfigError(msg)
    if plan is not None:
        if iterations is not None:
            msg = f"'--iterations' must go with --rewards; got {iterations} and a plan. Use --set train.iterations=."
            raise ConfigError(msg)
        return plan
    made = source_plan(named_sources(rewards or ""), config, iterations, assignments)
    path = workspace.root / "comparisons" / made["name"] / "plan.yaml"
    text = yaml.safe_dump(made, sort_keys=False, allow_unicode=True)
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        atomic_write(path, text)
    return path
