"""Version the data: the only module that calls dvc, always as a command of this interpreter and under one lock.

`dvc --wait-for-lock` waits for the repository's lock only. While a stage's command runs, dvc gives that lock up and
marks the stage's files as busy, and whoever touches those fails at once, waiting or not. So every command here first
takes a lock file of our own beside dvc's.
"""

import hashlib
import json
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from rangeline.errors import BadInputError, ToolError
from rangeline.lineage import atomic_write
from tasks.dead_dvc_locks import release_dead
from tasks.processes import file_lock, require_success

logger = logging.getLogger("rangeline")
REMOTE = "local"
"""Name of the remote that `ensure_repository` sets up."""

_DVC = (sys.executable, "-m", "dvc", "--wait-for-lock")


def ensure_repository(workspace: Path, remote_dir: Path) -> Path:
    """Make sure that the workspace lies in a dvc repository with a default remote, and return the repository.

    An existing repository, above the workspace too, is used as it is; so is a default remote that somebody chose. Else
    one is made (inside git or without), and a folder becomes the remote in `.dvc/config.local`: the committed
    configuration never names a folder of this machine. Calling it again changes nothing.

    Parameters
    ----------
    workspace
        Folder to version.
    remote_dir
        Folder of the default remote, made where absent; should lie outside the repository.

    Returns
    -------
    pathlib.Path
        Root of the repository.

    Raises
    ------
    ToolError
        If dvc fails.
    """
    workspace.mkdir(parents=True, exist_ok=True)
    with file_lock(workspace / ".rangeline" / "dvc-init.lock"):
        root = _find_up(workspace, ".dvc")
        if root is None:
            root = workspace.resolve()
            git = _find_up(root, ".git")
            flags = ["--no-scm"] if git is None else [] if git == root else ["--subdir"]
            require_success([*_DVC, "init", "--quiet", *flags], cwd=root)
    if not any(line.endswith("(default)") for line in _run(root, "remote", "list")):
        remote_dir.mkdir(parents=True, exist_ok=True)
        _run(root, "remote", "add", "--local", "--force", "--default", REMOTE, str(remote_dir.resolve()))
    return root


def reproduce(
    workspace: Path,
    targets: Sequence[str],
    *,
    on_line: Callable[[str], None],
    force: bool = False,
    alone: bool = False,
) -> None:
    """Bring stages of `dvc.yaml` and all that they need up to date, streaming what is said.

    A stage whose command, dependencies, parameters and outputs match `dvc.lock` is skipped. One that does not match,
    but ran with exactly these before, is restored from dvc's run cache (`.dvc/cache/runs`) without running: a setting
    changed and changed back costs nothing. `force` runs all the same and looks at neither. So a stage must give the
    same bytes for the same inputs; what depends on the clock or the network does not belong into `dvc.yaml`.

    Parameters
    ----------
    workspace
        Folder that holds `dvc.yaml`.
    targets
        Stage names; none means all stages.
    on_line
        Called with each line of output.
    force
        Run the stages even where nothing changed.
    alone
        Leave out the stages that they need.

    Raises
    ------
    ToolError
        If a stage or dvc fails; its last lines are in the message.
    """
    flags = [*(["--force"] if force else []), *(["--single-item"] if alone else [])]
    _run(workspace, "repro", *flags, *targets, on_line=on_line)


def status(workspace: Path) -> dict[str, Any]:
    """Return what differs from `dvc.lock` by stage, as dvc tells it; empty when all is up to date.

    Raises
    ------
    ToolError
        If dvc fails or answers no JSON.
    """
    lines = _run(workspace, "status", "--json")
    answer = next((line for line in lines if line.startswith("{")), None)
    if answer is None:
        msg = f"'dvc status' must answer JSON; got {lines} (in {workspace}). Run `dvc doctor` there."
        raise ToolError(msg)
    return dict(json.loads(answer))


def push(workspace: Path, targets: Sequence[str] = ()) -> None:
    """Copy tracked outputs to the default remote; no target means all.

    Raises
    ------
    ToolError
        If dvc fails.
    """
    _run(workspace, "push", *targets)


def refresh_imports(workspace: Path, folders: Sequence[Path]) -> tuple[str, ...]:
    """Bring what `.dvc` files in folders name up to date, and return those whose data changed.

    An import (`dvc import-url`, `dvc import`) is updated from where it was imported; what was added (`dvc add`) is
    pulled from the default remote where it is not there. Without such files nothing is done.

    Raises
    ------
    BadInputError
        If there are such files and the workspace lies in no dvc repository.
    ToolError
        If dvc fails, as where a remote cannot be reached.
    """
    changed = []
    for folder in dict.fromkeys(path.resolve() for path in folders):
        for pointer in sorted(folder.glob("*.dvc")):
            before = pointer.read_bytes()
            value: dict[str, Any] = yaml.safe_load(before)
            absent = not all((folder / out["path"]).exists() for out in value["outs"])
            _run(workspace, "update" if "deps" in value else "pull", str(pointer))
            if absent or pointer.read_bytes() != before:
                changed.append(pointer.relative_to(workspace.resolve()).as_posix())
    return tuple(changed)


def locked_stages(workspace: Path) -> tuple[str, ...]:
    """Return the names of the stages in `dvc.lock`: those that were run. No lock file gives none."""
    path = workspace / "dvc.lock"
    locked = yaml.safe_load(path.read_text(encoding="utf-8")) if path.is_file() else None
    return tuple((locked or {}).get("stages", {}))


def locked_outputs(workspace: Path) -> dict[str, str]:
    """Return the md5 of every stage output in `dvc.lock` by its path; folders have digests that end in `.dir`.

    Paths are relative to the workspace. Stages are expected to run there (no `wdir`). No lock file gives none.
    """
    path = workspace / "dvc.lock"
    stages = (yaml.safe_load(path.read_text(encoding="utf-8")) or {}).get("stages", {}) if path.is_file() else {}
    return {out["path"]: out["md5"] for stage in stages.values() for out in stage.get("outs", []) if "md5" in out}


def cached_original(workspace: Path, md5: str) -> Path | None:
    """Return the file of dvc's cache that holds the bytes of a digest; None where absent or itself damaged.

    Parameters
    ----------
    workspace
        Folder inside the repository.
    md5
        Digest as `dvc.lock` writes it.

    Raises
    ------
    BadInputError
        If the workspace lies in no dvc repository.
    ToolError
        If dvc fails.
    """
    return find_cached(cache_folder(workspace), md5)


def cache_folder(workspace: Path) -> Path:
    """Return the folder of dvc's cache."""
    return Path(_run(workspace, "cache", "dir")[-1])


def find_cached(cache: Path, md5: str) -> Path | None:
    """Return the file of a cache that holds the bytes of a digest; None where absent or itself damaged."""
    path = cache / "files" / "md5" / md5[:2] / md5[2:]
    if not path.is_file():
        return None
    with path.open("rb") as handle:
        digest = hashlib.file_digest(handle, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    return path if digest == md5.removesuffix(".dir") else None


def original_of(workspace: Path, relative_file: str) -> Path | None:
    """Return the cached bytes that a tracked file had when it was locked, whatever it holds now.

    Parameters
    ----------
    workspace
        Folder that holds `dvc.lock`.
    relative_file
        Path of the file from the workspace: an output of a stage, an added file, or a file inside a tracked folder.

    Returns
    -------
    pathlib.Path or None
        File of the cache; None where the file is not tracked or its bytes are not in the cache.

    Raises
    ------
    BadInputError
        If the workspace lies in no dvc repository.
    ToolError
        If dvc fails.
    """
    wanted = PurePosixPath(relative_file)
    locked = locked_outputs(workspace)
    for candidate in (wanted, *wanted.parents):
        md5 = locked.get(str(candidate)) or _added_md5(workspace / candidate)
        if md5 is None:
            continue
        if candidate == wanted:
            return cached_original(workspace, md5)
        inside = _md5_inside(workspace, md5, str(wanted.relative_to(candidate)))
        return cached_original(workspace, inside) if inside is not None else None
    return None


def _run(workspace: Path, *arguments: str, on_line: Callable[[str], None] | None = None) -> list[str]:
    root = _find_up(workspace, ".dvc")
    if root is None:
        msg = f"'workspace' must lie in a dvc repository; got {workspace}. Call `ensure_repository` or run `dvc init`."
        raise BadInputError(msg)
    lines: list[str] = []
    with file_lock(root / ".dvc" / "tmp" / "rangeline.lock"):
        _guard_lock_file(workspace, root)
        release_dead(root / ".dvc" / "tmp")
        require_success([*_DVC, *arguments], cwd=workspace, on_line=on_line or lines.append)
    return lines


def _guard_lock_file(workspace: Path, root: Path) -> None:
    """Keep a copy of a whole `dvc.lock`, and put it back where a killed dvc left half of one: it writes in place.

    What ran since the copy was made is not in it: dvc then takes those stages from its run cache, or runs them again.
    """
    path = workspace / "dvc.lock"
    if not path.exists():
        return
    copy = (
        root / ".dvc" / "tmp" / f"rangeline-{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:16]}.lock.yaml"
    )
    if _is_whole(path):
        content = path.read_bytes()
        if not copy.is_file() or copy.read_bytes() != content:
            atomic_write(copy, content)
    elif copy.is_file():
        logger.warning("dvc.lock was cut short by a killed command: its last whole state is put back (%s)", path)
        atomic_write(path, copy.read_bytes())
    else:
        logger.warning("dvc.lock was cut short by a killed command, and is made anew (%s)", path)
        path.unlink()


def _is_whole(path: Path) -> bool:
    """Tell whether a lock file is one that dvc finished: it ends its last line, and every stage its command."""
    text = path.read_text(encoding="utf-8", errors="replace")
    try:
        stages = yaml.safe_load(text)["stages"]
        return text.endswith("\n") and all("cmd" in stage for stage in stages.values())
    except (yaml.YAMLError, TypeError, KeyError, AttributeError):
        return False


def _find_up(folder: Path, name: str) -> Path | None:
    start = folder.resolve()
    return next((place for place in (start, *start.parents) if (place / name).exists()), None)


def _added_md5(path: Path) -> str | None:
    """Return the digest of what `dvc add` put under version control, or None."""
    pointer = path.with_name(f"{path.name}.dvc") if path.name else path
    if not pointer.is_file():
        return None
    outs: list[dict[str, str]] = yaml.safe_load(pointer.read_text(encoding="utf-8"))["outs"]
    return next((out.get("md5") for out in outs if out["path"] == path.name), None)


def _md5_inside(workspace: Path, folder_md5: str, relative: str) -> str | None:
    listing = cached_original(workspace, folder_md5)
    if listing is None:
        return None
    entries: Iterator[dict[str, str]] = iter(json.loads(listing.read_text(encoding="utf-8")))
    return next((entry["md5"] for entry in entries if entry["relpath"] == relative), None)
