"""Where the problems of an evaluation come from: a file of the workspace, the registry's source, or a packaged part.

A file `data/benchmarks/<name>.jsonl` (`.csv`, `.parquet`) wins; it holds prompt rows, or the columns that the registry
names. Else the registry's source is read. Where the Hub cannot be reached, the entry `<name>_packaged` stands in and
the result says so; where there is none, the benchmark is told as absent with the reason, and nothing is made up.
"""

import os
import re
import socket
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from rangeline.config import PipelineConfig
from rangeline.errors import ConfigError, DataContractError
from rangeline.prompts.benchmarks import Benchmark, benchmark_rows
from rangeline.prompts.contract import parse_rows, read_rows
from rangeline.prompts.sources import read_records
from rangeline.records import PromptRow
from rangeline.stages.sources import registry_of
from rangeline.stages.workspace import Workspace

SUMMARIES = ("samsum", "aclsum_packaged")
"""Benchmarks whose completions go through the summary extractor before they are compared."""
_FORMS = (".jsonl", ".csv", ".parquet")
_PACKAGED = "_packaged"
_REACH_S = 3.0
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
"""A name becomes a file's and a folder's: it must not lead out of either."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problems:
    """The problems of one benchmark, and where they came from."""

    name: str
    rows: tuple[PromptRow, ...]
    source: str
    remark: str | None = None
    """What a reader of its numbers must know of the source; None where there is nothing."""
    private: bool = False
    """True where their text may not be shown or copied anywhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unavailable:
    """A benchmark that cannot be run here."""

    name: str
    reason: str


def read_problems(workspace: Workspace, config: PipelineConfig, name: str) -> Problems | Unavailable:
    """Return a benchmark's problems, or why they are not at hand.

    Raises
    ------
    ConfigError
        When neither a file nor the registry knows the name.
    DataContractError
        When a file of the workspace is there and cannot be used.
    """
    if not _NAME.fullmatch(name):
        msg = f"'benchmarks' must be names of letters, digits, '.', '_' or '-'; got '{name:.100}'. Correct the name."
        raise ConfigError(msg)
    known = registry_of(workspace, config)
    folder = workspace.root / "data" / "benchmarks"
    path = next((folder / f"{name}{form}" for form in _FORMS if (folder / f"{name}{form}").is_file()), None)
    if path is not None:
        return _from_file(path, name, known.get(name))
    if name not in known:
        msg = f"'benchmarks' must be among {', '.join(sorted(known))}, or a file '{folder / name}.jsonl'; got '{name}'."
        raise ConfigError(msg)
    reason = _unreachable(known[name])
    if reason is None:
        try:
            return _from_registry(workspace, known[name], name)
        except (ConfigError, DataContractError) as error:
            reason = str(error)
    if name + _PACKAGED not in known:
        return Unavailable(name=name, reason=reason)
    try:
        found = _from_registry(workspace, known[name + _PACKAGED], name)
    except (ConfigError, DataContractError) as error:
        return Unavailable(name=name, reason=f"{reason} {error}")
    return replace(found, remark=f"{len(found.rows)} problems of {found.source}, for the whole set is not at hand")


def _from_file(path: Path, name: str, benchmark: Benchmark | None) -> Problems:
    records = read_rows(path)
    private = benchmark is not None and benchmark.private
    if benchmark is None or {"prompt_id", "suite"} <= records[0].keys():
        return _made(name, parse_rows(records, source=path.name), source=path.name, private=private)
    return _made(name, benchmark_rows(benchmark, records).rows, source=path.name, private=private)


def _from_registry(workspace: Workspace, benchmark: Benchmark, name: str) -> Problems:
    rows = benchmark_rows(benchmark, read_records(benchmark, root=workspace.root)).rows
    pinned = f"{benchmark.source}@{benchmark.revision}" if benchmark.revision else benchmark.source
    return _made(name, rows, source=pinned, private=benchmark.private)


def _made(name: str, rows: tuple[PromptRow, ...], *, source: str, private: bool) -> Problems:
    if name in SUMMARIES:
        rows = tuple(replace(row, metadata={**row.metadata, "extract": "summary"}) for row in rows)
    return Problems(name=name, rows=rows, source=source, private=private)


def _unreachable(benchmark: Benchmark) -> str | None:
    """Say why a Hub source need not be tried: its client would try for half a minute before it gives up."""
    if not benchmark.source.startswith("hub:") or os.environ.get("HF_HUB_OFFLINE") == "1":
        return None
    if os.environ.get("HTTPS_PROXY") or os.environ.get("https_proxy"):
        return None
    address = urlsplit(os.environ.get("HF_ENDPOINT", "https://huggingface.co"))
    try:
        socket.create_connection((address.hostname or "", address.port or 443), timeout=_REACH_S).close()
    except OSError:
        return f"{benchmark.source}: the Hub cannot be reached (HF_HUB_OFFLINE=1 reads its cache)"
    return None
