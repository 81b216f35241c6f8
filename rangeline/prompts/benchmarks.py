"""Which benchmarks exist and how their columns become prompt rows.

A benchmark has a source, a pinned revision, a suite, and a column for each role: `question`, `answer`; `options` with
an answer by index, letter or label, or one `correct` and several `wrong` columns; `type`; `references`. Options that
are padding ("N/A") are dropped, shuffled ones are shuffled by a seed of the question alone, so that every run sees the
same order. Rows that ask the same become one; what cannot be a row is listed with its reason, never guessed.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from importlib.resources import files
from typing import Any, Literal, cast

import numpy as np
import yaml

from rangeline.errors import ConfigError, DataContractError
from rangeline.prompts.contract import parse_rows
from rangeline.prompts.duplicates import normalise_text
from rangeline.records import PromptRow
from rangeline.seeds import seed_of

LETTERS = "ABCDEFGHIJ"
PADDING = frozenset({"n/a", "na", ""})
_TYPES = {
    "bool": "boolean",
    "boolean": "boolean",
    "decimal": "float",
    "expression": "expression",
    "float": "float",
    "fraction": "fraction",
    "integer": "integer",
    "list": "list",
    "list of float": "list",
    "list of integer": "list",
    "matrix": "matrix",
    "multiple choice": "option",
    "option": "option",
    "other": "expression",
    "percentage": "percentage",
    "string": "string",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """One benchmark of the registry."""

    name: str
    suite: str
    source: str
    """`hub:<owner>/<name>`, `package:<package>/<path>` or `file:<path>`."""
    columns: Mapping[str, Any]
    """Column of each role; a dot goes into a nested column."""
    config: str | None = None
    split: str | None = None
    revision: str | None = None
    """Commit of a Hub source, version of a package."""
    licence: str = "unknown"
    metric: str = "pass@k"
    k: tuple[int, ...] = (1,)
    rows_at: str | None = None
    """Key of the rows inside a JSON file."""
    layout: Literal["rows", "worked_choices"] = "rows"
    where: Mapping[str, Any] = field(default_factory=dict)
    """Columns with the values that a row must have."""
    instruction: str | None = None
    """Sentence before each question."""
    tolerance: float | None = None
    shuffled: bool = False
    private: bool = False
    """True where the text of rows may not be shown anywhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkRows:
    """What a benchmark gave."""

    rows: tuple[PromptRow, ...]
    repeats: int
    """Rows that asked the same as one before."""
    unusable: tuple[tuple[int, str], ...]
    """Number of each row, from 1, that could be none, with the reason."""


def read_registry(text: str | None = None, *, source: str = "benchmarks.yaml") -> dict[str, Benchmark]:
    """Return the benchmarks of a registry by name; None reads the one that comes with the package.

    Raises
    ------
    ConfigError
        If the text is no mapping of benchmarks, or one has an unknown or missing field.
    """
    text = files("rangeline.prompts").joinpath("benchmarks.yaml").read_text("utf-8") if text is None else text
    try:
        given = yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        msg = f"'{source}' must be YAML; got {' '.join(str(error).split())[:120]}. Correct that line."
        raise ConfigError(msg) from error
    if not isinstance(given, dict) or not all(isinstance(one, dict) for one in given.values()):
        msg = f"'{source}' must map names of benchmarks to their fields; got {str(given)[:80]}. Correct the file."
        raise ConfigError(msg)
    return {name: make_benchmark(name, one) for name, one in given.items()}


def make_benchmark(name: str, given: Mapping[str, Any]) -> Benchmark:
    """Return a benchmark from its fields.

    Raises
    ------
    ConfigError
        If a field is unknown, or `suite`, `source` or `columns` is missing.
    """
    known = {one.name for one in fields(Benchmark)} - {"name"}
    for key in given:
        if key not in known:
            msg = f"'{key}' must be one of {', '.join(sorted(known))} (benchmark '{name}'). Correct the registry."
            raise ConfigError(msg)
    if not {"suite", "source", "columns"} <= set(given) or not isinstance(given["columns"], Mapping):
        msg = f"'{name}' must have suite, source and columns; got {', '.join(given)}. Correct the registry."
        raise ConfigError(msg)
    return Benchmark(name=name, **{**given, "k": tuple(given.get("k", (1,)))})


def _cell(record: Mapping[str, Any], column: str) -> Any:
    """Return a cell; a dot in the name goes into a nested column, unless a column has that very name."""
    if column in record:
        return record[column]
    value: Any = record
    for part in column.split("."):
        if not isinstance(value, Mapping) or part not in value:
            msg = f"column '{column}' is missing"
            raise KeyError(msg)
        value = value[part]
    return value


def _text(value: Any) -> str:
    """Return a cell as text; the members of a list parted by commas, sentences of a list parted by spaces."""
    if isinstance(value, list | tuple | np.ndarray):
        parts = [str(one).strip() for one in value]
        return (" " if any(part.endswith(".") for part in parts) else ", ").join(parts)
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return "" if value is None else str(value).strip()


def _letter(answer: Any, labels: Sequence[str] | None, num_options: int) -> int | None:
    """Return the index of an answer that is an index, a letter, or one of the labels."""
    if isinstance(answer, int | np.integer) and not isinstance(answer, bool):
        return int(answer) if 0 <= int(answer) < num_options else None
    text = str(answer).strip().strip("().")
    if labels is not None:
        return list(labels).index(text) if text in labels else None
    if text.isdigit():
        return int(text) if int(text) < num_options else None
    place = LETTERS.find(text.upper()) if len(text) == 1 else -1
    return place if 0 <= place < num_options else None


def _choices(benchmark: Benchmark, record: Mapping[str, Any], question: str) -> dict[str, Any]:
    columns = benchmark.columns
    if "correct" in columns:
        options = [_text(_cell(record, columns["correct"])), *(_text(_cell(record, name)) for name in columns["wrong"])]
        right: int | None = 0
    else:
        options = [_text(option) for option in _cell(record, columns["options"])]
        labels = [str(one) for one in _cell(record, columns["labels"])] if "labels" in columns else None
        right = _letter(_cell(record, columns["answer"]), labels, len(options))
    if right is None:
        msg = "answer names no option"
        raise ValueError(msg)
    kept = [i for i, option in enumerate(options) if option.casefold() not in PADDING]
    if right not in kept:
        msg = "answer is padding"
        raise ValueError(msg)
    if benchmark.shuffled:
        generator = np.random.default_rng(seed_of(0, "options", benchmark.name, question))
        kept = [kept[i] for i in generator.permutation(len(kept))]
    if not 2 <= len(kept) <= len(LETTERS):
        msg = f"{len(kept)} options"
        raise ValueError(msg)
    return {"reference": LETTERS[kept.index(right)], "metadata": {"options": [options[i] for i in kept]}}


def _fields(benchmark: Benchmark, record: Mapping[str, Any]) -> dict[str, Any]:
    columns = benchmark.columns
    question = _text(_cell(record, columns["question"]))
    if not question:
        msg = "question is blank"
        raise ValueError(msg)
    if "correct" in columns or "options" in columns:
        made = _choices(benchmark, record, question)
    elif "references" in columns:
        given = _cell(record, columns["references"])
        texts = [_text(one) for one in given] if isinstance(given, list | tuple | np.ndarray) else [_text(given)]
        texts = [text for text in texts if text]
        made = {"reference": texts[0] if texts else "", "metadata": {"references": texts}}
    else:
        made = {"reference": _text(_cell(record, columns["answer"])), "metadata": {}}
    if not made["reference"]:
        msg = "answer is blank"
        raise ValueError(msg)
    if "type" in columns:
        given = str(_cell(record, columns["type"])).strip().casefold()
        made["metadata"]["answer_type"] = _TYPES.get(given, "expression")
    if benchmark.tolerance is not None:
        made["metadata"]["tolerance"] = benchmark.tolerance
    if benchmark.private:
        made["metadata"]["private"] = True
    prompt = f"{benchmark.instruction}\n\n{question}" if benchmark.instruction else question
    options = "\n".join(made["metadata"].get("options", []))
    key = hashlib.sha256(f"{normalise_text(question)}\n{sorted(options.split())}".encode()).hexdigest()[:12]
    return {"prompt_id": f"{benchmark.name}-{key}", "prompt": prompt, "suite": benchmark.suite, **made}


def benchmark_rows(
    benchmark: Benchmark,
    records: Sequence[Mapping[str, Any]],
    *,
    share: Literal["train", "audit", "evaluation"] = "evaluation",
    domain: str | None = None,
) -> BenchmarkRows:
    """Return the prompt rows of a benchmark's records.

    Parameters
    ----------
    benchmark
        Its entry in the registry.
    records
        Rows as read from the source, one mapping of columns each.
    share
        What the rows are reserved for.
    domain
        Name of the distribution; None takes the benchmark's name.

    Raises
    ------
    DataContractError
        If no record could become a row; the message names the first reason and no text of a record.
    """
    made: dict[str, dict[str, Any]] = {}
    repeats, unusable, num_met = 0, [], 0
    for number, record in enumerate(records, start=1):
        try:
            if any(_cell(record, column) != value for column, value in benchmark.where.items()):
                continue
            num_met += 1
            row = _fields(benchmark, record)
        except (KeyError, ValueError, TypeError) as error:
            unusable.append((number, str(error).strip("'\"")))
            continue
        repeats += row["prompt_id"] in made
        made.setdefault(row["prompt_id"], {**row, "share": share, "domain": domain or benchmark.name})
    if not made:
        reason = unusable[0][1] if unusable else "no row has the wanted values"
        msg = f"'{benchmark.name}' must give at least one row; got 0 of {len(records)} ({reason}). Correct its columns."
        raise DataContractError(msg)
    rows = parse_rows(list(made.values()), source=f"benchmark {benchmark.name}")
    return BenchmarkRows(rows=rows, repeats=repeats, unusable=tuple(unusable))


_WORKED = re.compile(
    r"^Q: (?P<question>.*?)\n\(A\) (?P<options>.*?)\nA: (?P<solution>.*?)(?=\n\s*\nQ: |\Z)", re.DOTALL | re.MULTILINE
)


def worked_choices(texts: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return records from few-shot prompts whose parts read `Q: ... (A) ... (B) ... A: ... The answer is (C)`.

    Parameters
    ----------
    texts
        One prompt with several worked questions for each subject.
    """
    records = []
    for subject, text in texts.items():
        for match in _WORKED.finditer(text):
            options = re.split(r"\s*\([B-J]\)\s*", match["options"])
            answer = re.findall(r"answer is \(?([A-J])\)?", match["solution"])
            record = {"question": match["question"].strip(), "options": options, "subject": subject}
            records.append({**record, "answer": cast(str, answer[-1] if answer else ""), "solution": match["solution"]})
    return records
