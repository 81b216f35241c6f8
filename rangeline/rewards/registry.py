"""Which reward sources exist, and what each needs before it can score.

To add a source: write its file in this room, name it in `reward_config.SourceName`, add a line here, and one to the
scorers of `stages/scorers.py`.
"""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from rangeline.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFacts:
    """What a reward source needs."""

    summary: str
    """What it rewards, in a few words."""
    needs_judge: bool = False
    """Judgment states and calibrated intervals; an iteration without such a source measures no coverage."""
    gives_widths: bool = False
    """Intervals; all others give points, to which what labelled intervals say of an estimator does not apply."""
    needs_references: bool = False
    """A reference answer on every prompt it scores."""
    needs_reasoning: bool = False
    """Prompts that are answered with reasoning: a reply of the answer alone has nothing that it could reward."""
    is_supervised: bool = False
    """True where it gives texts to learn and no rewards; one greedy completion a prompt is drawn."""
    needs_stages: tuple[str, ...] = ()
    """Versioned stages that must be made before training, by the name of their folder in a workspace."""


_JUDGED = {"needs_judge": True, "needs_stages": ("calibration",)}

SOURCES: Mapping[str, SourceFacts] = MappingProxyType(
    {
        "judge_interval": SourceFacts(
            summary="calibrated interval of the judge",
            needs_judge=True,
            gives_widths=True,
            needs_stages=("calibration",),
        ),
        "variance_aware": SourceFacts(summary="a draw from the judge's interval", **_JUDGED),  # type: ignore[arg-type]
        "student_t": SourceFacts(summary="side of the group's Student-t intervals", **_JUDGED),  # type: ignore[arg-type]
        "verifier": SourceFacts(summary="answer equals the reference", needs_references=True),
        "reference_probability": SourceFacts(
            summary="probability of the reference", needs_references=True, needs_reasoning=True
        ),
        "verifree": SourceFacts(summary="likelihood of the reference", needs_references=True, needs_reasoning=True),
        "verifier_model": SourceFacts(summary="a model says the answer is equal", needs_references=True),
        "majority": SourceFacts(summary="answer equals the group's most frequent one"),
        "self_certainty": SourceFacts(summary="distance of the policy from uniform"),
        "token_entropy": SourceFacts(summary="negative sum of the policy's entropies"),
        "sequence_likelihood": SourceFacts(summary="log-likelihood of the completion"),
        "trapo": SourceFacts(summary="majority on prompts whose pass rates move like labelled ones"),
        "anchor_contrast": SourceFacts(
            summary="nearer to positive than to negative anchors", needs_stages=("anchors", "metric_head")
        ),
        "sft": SourceFacts(summary="learn the reference", needs_references=True, is_supervised=True),
        "pseudo_sft": SourceFacts(summary="learn one greedy completion", is_supervised=True),
    }
)
"""Every reward source by its name."""


def source_facts(name: str) -> SourceFacts:
    """Return what a source needs.

    Raises
    ------
    ConfigError
        If no source has this name; the message names those that exist.

    Examples
    --------
    >>> source_facts("majority").needs_references
    False
    """
    if name not in SOURCES:
        close = difflib.get_close_matches(name, SOURCES, n=1)
        hint = f"Did you mean '{close[0]}'?" if close else "Choose one of them."
        msg = f"'reward.source' must be one of {', '.join(sorted(SOURCES))}; got '{name}'. {hint}"
        raise ConfigError(msg)
    return SOURCES[name]


def stages_needed(names: Iterable[str]) -> tuple[str, ...]:
    """Return the stages that some sources need, each once, in order of appearance."""
    return tuple(dict.fromkeys(stage for name in names for stage in source_facts(name).needs_stages))
