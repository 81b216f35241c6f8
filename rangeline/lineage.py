"""Artifact refs, digests, atomic writes and manifests: what was made from what, provable by hash.

A manifest is a JSON file beside the artifacts it describes: inputs, outputs, parameters, parents (manifests, by
their own hash), code commit and environment. It holds no clock time, so that making the same artifact again gives
the same bytes. Paths are relative to the workspace, so that a moved workspace still verifies.
"""

import hashlib
import importlib.metadata
import json
import os
import platform
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any

from rangeline.errors import LineageError
from rangeline.records import ArtifactRef

MANIFEST_NAME = "manifest.json"
MANIFEST_FORMAT = 1
# A file has at most this many blocks, so that a manifest stays small and a damaged byte is still located.
MAX_BLOCKS = 256
MIN_BLOCK_BYTES = 256
_READ_BYTES = 1 << 20
_PARTIAL = ".partial-"
_SYNC_AT_ONCE: ContextVar[bool] = ContextVar("sync_at_once", default=True)
"""Whether a file outlasts a power failure as soon as it has its name."""


def _sweep(path: Path) -> None:
    """Remove what killed writers of this file had begun."""
    begun = f".{path.name}{_PARTIAL}"
    with os.scandir(path.parent) as entries:
        left = [entry.name for entry in entries if entry.name.startswith(begun)]
    for name in left:
        writer = name.removeprefix(begun)
        if writer.isdigit() and not _is_alive(int(writer)):
            (path.parent / name).unlink(missing_ok=True)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


@contextmanager
def deferred_sync() -> Iterator[None]:
    """Leave files that are written in the block to the system's own time; `sync_disks` then makes them last."""
    token = _SYNC_AT_ONCE.set(False)
    try:
        yield
    finally:
        _SYNC_AT_ONCE.reset(token)


def sync_disks() -> None:
    """Make everything written so far last through a power failure: one call for any number of files."""
    os.sync()


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Give a temporary path beside `path`; move it there when the block ends, delete it when the block fails."""
    path.parent.mkdir(parents=True, exist_ok=True)
    _sweep(path)
    partial = path.with_name(f".{path.name}{_PARTIAL}{os.getpid()}")
    try:
        yield partial
        if _SYNC_AT_ONCE.get():
            with partial.open("rb") as handle:
                os.fsync(handle.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def atomic_write(path: Path, content: bytes | str) -> None:
    """Write a whole file or nothing: a reader never sees half of it."""
    with atomic_path(path) as partial:
        partial.write_bytes(content.encode() if isinstance(content, str) else content)


def write_json(path: Path, value: Any) -> None:
    """Write JSON with sorted keys atomically; refuses NaN and infinity, which JSON does not know."""
    atomic_write(path, json.dumps(value, indent=1, sort_keys=True, allow_nan=False, ensure_ascii=False) + "\n")


def digest_bytes(content: bytes) -> str:
    """Return the sha256 of bytes in hex."""
    return hashlib.sha256(content).hexdigest()


def digest_json(value: Any) -> str:
    """Return the sha256 of a value's canonical JSON, in hex."""
    return digest_bytes(json.dumps(value, sort_keys=True, separators=(",", ":"), default=str).encode())


def digest_file(path: Path) -> str:
    """Return the sha256 of a file in hex."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def block_bytes(size: int) -> int:
    """Return the block length for a file of `size` bytes."""
    return max(MIN_BLOCK_BYTES, -(-size // MAX_BLOCKS))


def block_digests(path: Path) -> list[str]:
    """Return the first 16 hex digits of each block's sha256, in order."""
    length = block_bytes(path.stat().st_size)
    with path.open("rb") as handle:
        return [digest_bytes(block)[:16] for block in iter(lambda: handle.read(length), b"")]


def relative_path(path: Path, root: Path) -> str:
    """Return `path` relative to the workspace in POSIX form; absolute when it lies outside."""
    return _below(path, os.path.realpath(root))


def _below(path: Path, real_root: str) -> str:
    return os.path.realpath(path).removeprefix(f"{real_root.rstrip('/')}/")


def artifact_ref(path: Path, root: Path, *, rows: int | None = None) -> ArtifactRef:
    """Describe a file by its workspace path, digests, size and rows.

    Raises
    ------
    LineageError
        When the file does not exist.
    """
    return _artifact_ref(path, os.path.realpath(root), rows)


def _artifact_ref(path: Path, real_root: str, rows: int | None = None) -> ArtifactRef:
    if not path.is_file():
        msg = f"Artifact '{path}' must exist; got no such file. Make it again with the stage that writes it."
        raise LineageError(msg)
    md5, sha256 = hashlib.md5(usedforsecurity=False), hashlib.sha256()
    with path.open("rb") as handle:
        while chunk := handle.read(_READ_BYTES):
            md5.update(chunk)
            sha256.update(chunk)
    return ArtifactRef(
        path=_below(path, real_root),
        md5=md5.hexdigest(),
        sha256=sha256.hexdigest(),
        size=path.stat().st_size,
        rows=rows,
    )


@cache
def environment() -> dict[str, str]:
    """Describe the interpreter and the installed distributions; `packages_sha256` changes when any version does."""
    packages = sorted({f"{item.name}=={item.version}" for item in importlib.metadata.distributions()})
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "packages_sha256": digest_bytes("\n".join(packages).encode()),
    }


@cache
def code_state() -> dict[str, str | bool | None]:
    """Describe the code: package version, git commit, and whether tracked files differ from it.

    Commit and dirty flag are None where the package does not run from a git checkout.
    """
    home = Path(__file__).resolve().parent.parent

    def git(*words: str) -> str | None:
        result = subprocess.run(["git", *words], cwd=home, capture_output=True, text=True, check=False)
        return result.stdout.strip() if result.returncode == 0 else None

    changed = git("status", "--porcelain", "--untracked-files=no", "--", "rangeline", "flows", "tasks")
    return {
        "version": importlib.metadata.version("rangeline"),
        "commit": git("rev-parse", "HEAD"),
        "dirty": None if changed is None else bool(changed),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What one stage made, from what, with which settings, code and environment."""

    kind: str
    inputs: tuple[ArtifactRef, ...] = ()
    outputs: tuple[ArtifactRef, ...] = ()
    parents: tuple[ArtifactRef, ...] = ()
    """Manifests of the stages whose outputs were read, each by its own hash."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Counts, digests and proofs that are worth reading."""
    blocks: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Block digests of each output, by path: they locate a damaged byte."""
    code: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)


def write_manifest(
    path: Path,
    root: Path,
    *,
    kind: str,
    inputs: Iterable[Path] = (),
    outputs: Mapping[Path, int | None],
    parents: Iterable[Path] = (),
    **about: Mapping[str, Any],
) -> ArtifactRef:
    """Hash every file, write the manifest last and atomically, and return its ref.

    Parameters
    ----------
    path
        Where the manifest goes.
    root
        Workspace that paths are relative to.
    kind
        Word for what was made: pools, calibration, iteration.
    inputs, outputs, parents
        Files read, files made (with their number of rows, None where that has no meaning), manifests built upon.
    **about
        `parameters` and `facts`.

    Raises
    ------
    LineageError
        When a named file does not exist.
    """
    real_root = os.path.realpath(root)
    made = tuple(_artifact_ref(item, real_root, rows) for item, rows in outputs.items())
    manifest = Manifest(
        kind=kind,
        inputs=tuple(_artifact_ref(item, real_root) for item in inputs),
        outputs=made,
        parents=tuple(_artifact_ref(item, real_root) for item in parents),
        parameters=about.get("parameters", {}),
        facts=about.get("facts", {}),
        blocks={ref.path: block_digests(item) for ref, item in zip(made, outputs, strict=True)},
        code=code_state(),
        environment=environment(),
    )
    content = {item.name: getattr(manifest, item.name) for item in fields(manifest)}
    refs = {name: [asdict(ref) for ref in content[name]] for name in ("inputs", "outputs", "parents")}
    write_json(path, {"format": MANIFEST_FORMAT, **content, **refs})
    return _artifact_ref(path, real_root)


def read_manifest(path: Path) -> Manifest:
    """Read a manifest.

    Raises
    ------
    LineageError
        When the file is absent, no JSON, or of another format.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        if value.pop("format") != MANIFEST_FORMAT:
            msg = f"Manifest '{path}' must have format {MANIFEST_FORMAT}. Make the artifact again with this version."
            raise LineageError(msg)
        for name in ("inputs", "outputs", "parents"):
            value[name] = tuple(ArtifactRef(**ref) for ref in value[name])
        return Manifest(**value)
    except FileNotFoundError as error:
        msg = f"Manifest '{path}' must exist; got no such file. Run the stage that writes it."
        raise LineageError(msg) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        msg = f"Manifest '{path}' must be a Rangeline manifest; got {error}. Make the artifact again."
        raise LineageError(msg) from error
