"""The Suite protocol: how a family of prompts is asked, answered and checked.

A verdict is 1.0 or 0.0 where an answer could be read and compared, and missing (None) with a reason where not: nothing
was answered, it was cut off, several answers were given, or the comparison failed. What a reward does with silence is
not decided here: `training_reward` makes a complete completion without any answer 0.0, so that silence is never the
better choice. Nothing is divided; no partial credit is given, except where a suite says so.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from rangeline.errors import BadInputError
from rangeline.records import ChatMessage, PromptRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Extraction:
    """What was read from a completion as its final answer."""

    status: Literal["found", "absent", "ambiguous"]
    value: str | None = None
    """The answer's text; None unless found."""


SILENT = "no answer found"
"""Reason of a complete completion that answers nothing."""
ABSENT = Extraction(status="absent")
AMBIGUOUS = Extraction(status="ambiguous")


def found(value: str) -> Extraction:
    """Return the extraction of an answer that was found."""
    return Extraction(status="found", value=value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the checker says of one completion."""

    reward: float | None
    """1.0 right, 0.0 wrong, between where a suite scores by degree; None is missing and nobody may average it."""
    extracted: str | None
    """The answer that was compared; None unless one was found."""
    reason: str
    """`right`, `wrong`, `scored`, or why it is missing: `no answer found`, `cut off`, `ambiguous`, or what failed."""

    @property
    def outcome(self) -> Literal["right", "wrong", "scored", "missing"]:
        """Return the verdict in one word."""
        if self.reward is None:
            return "missing"
        if self.reason == "scored":
            return "scored"
        return "right" if self.reward == 1.0 else "wrong"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Outcome of comparing two answers."""

    equal: bool | None
    """None where it cannot be said."""
    reason: str = ""
    """Why, where it cannot be said; else empty or a remark."""


def training_reward(verdict: Verdict) -> float | None:
    """Return the reward that a policy is given for a verdict: as the verdict's, but 0.0 for a complete silence.

    What was cut off, ambiguous or not comparable stays missing.
    """
    return 0.0 if verdict.reason == SILENT else verdict.reward


class Suite(Protocol):
    """A family of prompts with its own way to ask and to check."""

    @property
    def name(self) -> str:
        """Return the name under which rows ask for this suite."""

    def render(self, row: PromptRow) -> tuple[ChatMessage, ...]:
        """Return the chat messages that put the question of a row."""

    def render_reference(self, row: PromptRow) -> str:
        """Return the completion text that would be the right answer of a labelled row."""

    def extract(self, completion: str, row: PromptRow, *, truncated: bool = False) -> Extraction:
        """Return the final answer of a completion: found, absent or ambiguous."""

    def canonical(self, answer: str) -> str:
        """Return one writing for all answers that `verify` holds equal, so that votes count answers, not writings."""

    def verify(self, completion: str, row: PromptRow, *, truncated: bool = False) -> Verdict:
        """Return the verdict on a completion of a labelled row."""


def render_chat(row: PromptRow, system: str, question: str | None = None) -> tuple[ChatMessage, ...]:
    """Return system and user message of a row; a prompt that is a chat already is used as it is.

    Parameters
    ----------
    row
        The prompt row.
    system
        Instruction on the form of the reply.
    question
        Text of the user message; None takes the prompt itself.
    """
    if isinstance(row.prompt, tuple):
        return row.prompt
    return ChatMessage("system", system), ChatMessage("user", row.prompt if question is None else question)


def require_reference(row: PromptRow) -> str:
    """Return the reference of a labelled row.

    Raises
    ------
    BadInputError
        If the row has no reference.
    """
    if row.reference is None:
        msg = (
            f"'reference' must be present to verify a completion; got None (prompt '{row.prompt_id}', suite "
            f"'{row.suite}'). Verify labelled rows only."
        )
        raise BadInputError(msg)
    return row.reference


def verdict_of(extraction: Extraction, is_right: Callable[[str], bool | Comparison], *, truncated: bool) -> Verdict:
    """Return the verdict on an extraction: an answer that was found counts, whatever came after it.

    Parameters
    ----------
    extraction
        The final answer as read from the completion.
    is_right
        Says of a found answer whether it equals the reference, or that this cannot be said.
    truncated
        True where the completion ended at the token limit.
    """
    if extraction.status == "found" and extraction.value is not None:
        said = is_right(extraction.value)
        outcome = said if isinstance(said, Comparison) else Comparison(said)
        if outcome.equal is None:
            return Verdict(reward=None, extracted=extraction.value, reason=outcome.reason)
        return Verdict(
            reward=float(outcome.equal), extracted=extraction.value, reason="right" if outcome.equal else "wrong"
        )
    if truncated:
        return Verdict(reward=None, extracted=None, reason="cut off")
    return Verdict(reward=None, extracted=None, reason="ambiguous" if extraction.status == "ambiguous" else SILENT)
