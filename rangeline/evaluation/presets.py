"""The result tables of the papers: which benchmark fills which column, by which measure, and what is averaged.

A column names a benchmark, a measure (`avg`, `pass`, `rouge1`, `rouge2`, `rougeL`, `rouge_mean`, `bleu`, `bert_score`)
and k. An average names its columns and is their plain mean. Sampling settings stand beside each benchmark; where the
papers' texts state none, they are ours and say so.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from rangeline.errors import ConfigError

VERDICT_MEASURES = ("avg", "pass", "cons")


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkPlan:
    """How one benchmark of a table is sampled."""

    name: str
    samples: int
    """n, completions a problem."""
    temperature: float
    """0 means greedy."""
    max_tokens: int
    source: str
    """Which of these the paper states, and which are ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of a table."""

    title: str
    benchmark: str
    measure: str
    k: int = 1
    """Completions of avg@k, pass@k and cons@k; 1 for overlap measures."""

    @property
    def key(self) -> str:
        """Name of the measure in a benchmark's metrics, such as `avg@32` or `rougeL`."""
        return f"{self.measure}@{self.k}" if self.measure in VERDICT_MEASURES else self.measure


@dataclass(frozen=True, slots=True, kw_only=True)
class Average:
    """The plain mean of some columns."""

    title: str
    columns: tuple[str, ...]
    """Titles of the columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """One paper's table."""

    name: str
    paper: str
    benchmarks: tuple[BenchmarkPlan, ...]
    columns: tuple[Column, ...]
    averages: tuple[Average, ...]


def _range_grpo() -> Preset:
    ours = "avg@32 and pass@1 are the paper's; temperature and token limit are ours: its text states none"
    repeated, single = ("aime_2024", "aime_2025", "amc"), ("math_500", "minerva", "olympiad_bench")
    outside = ("arc_challenge", "gpqa_diamond", "mmlu_pro")
    titles = {
        "aime_2024": "AIME 2024",
        "aime_2025": "AIME 2025",
        "amc": "AMC",
        "math_500": "MATH-500",
        "minerva": "Minerva",
        "olympiad_bench": "OlympiadBench",
        "arc_challenge": "ARC-c",
        "gpqa_diamond": "GPQA-diamond",
        "mmlu_pro": "MMLU-Pro",
    }
    inside = repeated + single
    plans = tuple(
        BenchmarkPlan(name=name, samples=32 if name in repeated else 1, temperature=0.6, max_tokens=3072, source=ours)
        for name in inside + outside
    )
    columns = tuple(
        Column(title=titles[name], benchmark=name, measure="avg", k=32)
        if name in repeated
        else Column(title=titles[name], benchmark=name, measure="pass", k=1)
        for name in inside + outside
    )
    return Preset(
        name="range-grpo",
        paper="Range-GRPO, table 2",
        benchmarks=plans,
        columns=columns,
        averages=(
            Average(title="ID average", columns=tuple(titles[name] for name in inside)),
            Average(title="OOD average", columns=tuple(titles[name] for name in outside)),
        ),
    )


def _rlpr() -> Preset:
    ours = "avg@k is the paper's; temperature and token limit are ours: its text states none"
    general = (
        ("MMLU-Pro", "mmlu_pro", 2),
        ("GPQA", "gpqa_diamond", 4),
        ("TheoremQA", "theoremqa", 2),
        ("WebInst.", "webinstruct_verified", 2),
    )
    mathematics = (("MATH-500", "math_500", 2), ("Minerva", "minerva", 2), ("AIME24", "aime_2024", 16))
    every = general + mathematics
    return Preset(
        name="rlpr",
        paper="RLPR, table 1",
        benchmarks=tuple(
            BenchmarkPlan(name=name, samples=k, temperature=0.6, max_tokens=3072, source=ours) for _, name, k in every
        ),
        columns=tuple(Column(title=title, benchmark=name, measure="avg", k=k) for title, name, k in every),
        averages=(
            Average(title="General", columns=tuple(title for title, _, _ in general)),
            Average(title="All", columns=tuple(title for title, _, _ in every)),
        ),
    )


def _rrpo() -> Preset:
    limit = "the token limit is the paper's of training (table 5)"
    eli5 = tuple(
        Column(title=f"ELI5 {title}", benchmark="eli5", measure=measure)
        for title, measure in (("R-1", "rouge1"), ("R-2", "rouge2"), ("R-L", "rougeL"), ("Mean-R", "rouge_mean"))
    )
    samsum = tuple(
        Column(title=f"SAMSum {title}", benchmark="samsum", measure=measure)
        for title, measure in (
            ("R-1", "rouge1"),
            ("R-2", "rouge2"),
            ("R-L", "rougeL"),
            ("Mean-R", "rouge_mean"),
            ("BLEU", "bleu"),
            ("BERT", "bert_score"),
        )
    )
    return Preset(
        name="rrpo",
        paper="RRPO, tables 1 and 2",
        benchmarks=(
            BenchmarkPlan(
                name="gsm8k", samples=8, temperature=1.0, max_tokens=1024, source=f"{limit}; n and temperature are ours"
            ),
            BenchmarkPlan(name="eli5", samples=1, temperature=0.0, max_tokens=384, source=f"{limit}; greedy"),
            BenchmarkPlan(name="samsum", samples=1, temperature=0.0, max_tokens=256, source=f"{limit}; greedy"),
        ),
        columns=(
            *(Column(title=f"GSM8K Pass@{k}", benchmark="gsm8k", measure="pass", k=k) for k in (1, 2, 4, 8)),
            *eli5,
            *samsum,
        ),
        averages=(),
    )


PRESETS: Mapping[str, Preset] = MappingProxyType({preset.name: preset for preset in (_range_grpo(), _rlpr(), _rrpo())})
"""Every table by name."""


def get_preset(name: str) -> Preset:
    """Return a table by name.

    Raises
    ------
    ConfigError
        If there is none; the message names those that exist.

    Examples
    --------
    >>> [average.title for average in get_preset("rlpr").averages]
    ['General', 'All']
    """
    if name not in PRESETS:
        close = difflib.get_close_matches(name, PRESETS, n=1)
        hint = f"Did you mean '{close[0]}'?" if close else "Name one of them."
        msg = f"'preset' must be one of {', '.join(PRESETS)}; got '{name}'. {hint}"
        raise ConfigError(msg)
    return PRESETS[name]
