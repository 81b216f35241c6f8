"""The ledger: one line a thing that was made, with clock, Prefect and MLflow ids, each line chained to the one before.

Manifests hold no clock, so that making an artifact again gives the same bytes. What differs from one making to the
next stands here: when, by which flow run, into which tracking run. A line holds the digest of the line before and its
own, so that a changed byte is found in the line that it lies in, and a removed or swapped line in the one after.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from rangeline.errors import LineageError
from rangeline.lineage import MANIFEST_NAME, digest_file, digest_json, read_manifest

LEDGER_FORMAT = 1
START = "0" * 64
"""What the first line names as the one before."""
PRUNED = "retention"
"""Kind of the entries that say what was deleted on purpose."""
_TAIL_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the ledger."""

    number: int
    kind: str
    manifest: Mapping[str, str] | None
    """Path and sha256 of the manifest that closed it; None for what has no manifest, such as a promotion."""
    files: tuple[Mapping[str, Any], ...]
    """Path and sha256 of what lies beside the manifest: reports, expectation pages, seconds of each step."""
    started: str | None
    ended: str
    prefect: Mapping[str, str]
    """Ids of flow run, task run and deployment; empty where no flow made it."""
    mlflow: Mapping[str, str]
    facts: Mapping[str, Any]
    digest: str


@dataclass(frozen=True)
class Ledger:
    """The entries whose own digest holds, and what is wrong with the file."""

    entries: tuple[Entry, ...]
    problems: tuple[str, ...]

    @cached_property
    def newest(self) -> dict[str, tuple[str, Entry]]:
        """The sha256 that each path had when it was last noted, with its entry."""
        found: dict[str, tuple[str, Entry]] = {}
        for entry in self.entries:
            for item in (*((entry.manifest,) if entry.manifest else ()), *entry.files):
                found[str(item["path"])] = (str(item["sha256"]), entry)
        return found

    @cached_property
    def by_manifest(self) -> dict[str, Entry]:
        """The last entry of each manifest version, by its sha256."""
        return {str(entry.manifest["sha256"]): entry for entry in self.entries if entry.manifest}

    @cached_property
    def begun(self) -> dict[str, int]:
        """The number of the line that noted each file first: an order of making that no clock decides."""
        found: dict[str, int] = {}
        for entry in self.entries:
            for item in entry.files:
                found.setdefault(str(item["path"]), entry.number)
        return found

    @cached_property
    def deleted(self) -> dict[str, str]:
        """Paths that retention deleted, with its reason; a folder stands for all in it."""
        return {
            path: str(entry.facts["reason"])
            for entry in self.entries
            if entry.kind == PRUNED
            for path in entry.facts["deleted"]
        }

    def why_deleted(self, path: str) -> str | None:
        """Return the reason for which retention deleted a path or a folder above it; None where it did not."""
        parts = path.split("/")
        places = ("/".join(parts[:length]) for length in range(len(parts), 0, -1))
        return next((self.deleted[place] for place in places if place in self.deleted), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """What is to be written down."""

    kind: str
    ended: str
    started: str | None = None
    manifest: Mapping[str, str] | None = None
    files: tuple[Mapping[str, Any], ...] = ()
    prefect: Mapping[str, str] = field(default_factory=dict)
    mlflow: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)


def ledger_path(root: Path) -> Path:
    """Return where a workspace's ledger lies."""
    return root / ".rangeline" / "ledger.jsonl"


def append_note(root: Path, note: Note) -> str:
    """Write a line at the end of the ledger, to the disk, and return its digest; the caller holds the ledger's lock.

    Raises
    ------
    LineageError
        When the last line is not whole: nothing can be chained to it.
    """
    path = ledger_path(root)
    path.parent.mkdir(parents=True, exist_ok=True)
    last = _last_line(path)
    value: dict[str, Any] = {
        "format": LEDGER_FORMAT,
        "number": 1 if last is None else int(last["number"]) + 1,
        "previous": START if last is None else str(last["digest"]),
        "kind": note.kind,
        "manifest": None if note.manifest is None else dict(note.manifest),
        "files": [dict(item) for item in note.files],
        "started": note.started,
        "ended": note.ended,
        "prefect": dict(note.prefect),
        "mlflow": dict(note.mlflow),
        "facts": dict(note.facts),
    }
    value["digest"] = digest_json(value)
    _append_whole(path, (_line(value) + "\n").encode())
    return str(value["digest"])


def _append_whole(path: Path, line: bytes) -> None:
    """Write a line or none of it: half of one, as a full disk leaves it, would be in the way of every later line."""
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        size = os.fstat(handle).st_size
        try:
            while line:
                line = line[os.write(handle, line) :]
            os.fsync(handle)
        except OSError:
            os.ftruncate(handle, size)
            raise
    finally:
        os.close(handle)


def _line(value: Mapping[str, Any]) -> str:
    return json.dumps(value, sort_keys=True, allow_nan=False)


def _last_line(path: Path) -> dict[str, Any] | None:
    if not path.is_file() or not path.stat().st_size:
        return None
    size = path.stat().st_size
    with path.open("rb") as handle:
        handle.seek(max(0, size - _TAIL_BYTES))
        tail = handle.read()
    if len(tail) < size and b"\n" not in tail[:-1]:
        tail = path.read_bytes()
    try:
        value: dict[str, Any] = json.loads(tail.rstrip(b"\n").rpartition(b"\n")[2])
        return {"number": value["number"], "digest": value["digest"]}
    except (ValueError, KeyError, TypeError) as error:
        msg = (
            f"The last line of '{path}' must be whole; got {error}. A writer was stopped in it, or it was changed: "
            "run 'rangeline audit all', then remove that line."
        )
        raise LineageError(msg) from error


def read_ledger(root: Path) -> Ledger:
    """Read a workspace's ledger and check its chain; an absent one is empty."""
    path = ledger_path(root)
    if not path.is_file():
        return Ledger((), ())
    entries, problems, before = [], [], START
    for number, line in enumerate(path.read_bytes().removesuffix(b"\n").split(b"\n"), start=1):
        try:
            value = json.loads(line)
            # Two writings of one value have one digest, so the line itself must be the one that is written here.
            is_own = _line(value).encode() == line
            digest, previous = value.pop("digest"), value["previous"]
            entry = _entry(value, digest)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            problems.append(f"line {number} is no entry: {error}")
            before = ""
            continue
        if not is_own or digest != digest_json(value):
            problems.append(f"line {number} was changed: its digest does not match what it says")
            before = digest
            continue
        if before and previous != before:
            problems.append(f"line {number} does not follow the line before it: a line was removed, added or swapped")
        entries.append(entry)
        before = digest
    return Ledger(tuple(entries), tuple(problems))


def _entry(value: Mapping[str, Any], digest: str) -> Entry:
    if value["format"] != LEDGER_FORMAT:
        msg = f"format must be {LEDGER_FORMAT}; got {value['format']}"
        raise ValueError(msg)
    return Entry(
        number=value["number"],
        kind=value["kind"],
        manifest=value["manifest"],
        files=tuple(value["files"]),
        started=value["started"],
        ended=value["ended"],
        prefect=value["prefect"],
        mlflow=value["mlflow"],
        facts=value["facts"],
        digest=digest,
    )


def vouched_files(root: Path, ledger: Ledger) -> dict[str, set[str]]:
    """Return, by path, the digests of what lies in place by right: last noted, or named by a manifest that was.

    A file of an older lineage that differs from its record but has such a digest was made anew since; it was not
    tampered with.
    """
    found: dict[str, set[str]] = {}
    for path, (sha256, _) in ledger.newest.items():
        found.setdefault(path, set()).add(sha256)
        # Iterations are never made anew under their old name, so their tables need no second voucher.
        if path.endswith(MANIFEST_NAME) and not path.startswith("runs/"):
            place = root / path
            if place.is_file() and digest_file(place) == sha256:
                for ref in (*read_manifest(place).outputs, *read_manifest(place).inputs):
                    found.setdefault(ref.path, set()).add(ref.sha256)
    return found
