"""The Suite protocol: how a family of prompts is asked, answered and checked.

A verdict lies in [0, 1] where an answer could be read, and is missing (None) where it could not be: a completion that
was cut off or that gives several answers says nothing about the policy's knowledge. A complete completion without any
answer is 0.0, so that silence is never the better choice. Nothing is divided; partial credit is a suite's own matter.
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


ABSENT = Extraction(status="absent")
AMBIGUOUS = Extraction(status="ambiguous")


def found(value: str) -> Extraction:
    """Return the extraction of an answer that was found."""
    return Extraction(status="found", value=value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Reward of one completion under the rule of its suite."""

    reward: float | None
    """1.0 right, 0.0 wrong, between them for partial credit; None is missing and nobody may average it."""
    extracted: str | None
    """The answer that was compared; None unless one was found."""
    reason: str
    """One of `right`, `partly right`, `wrong`, `no answer found`, `cut off`, `ambiguous`."""


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


def verdict_of(extraction: Extraction, is_right: Callable[[str], bool], *, truncated: bool) -> Verdict:
    """Return the verdict on an extraction: an answer that was found counts, whatever came after it.

    Parameters
    ----------
    extraction
        The final answer as read from the completion.
    is_right
        Says of a found answer whether it equals the reference.
    truncated
        True where the completion ended at the token limit.
    """
    if extraction.status == "found" and extraction.value is not None:
        right = is_right(extraction.value)
        return Verdict(reward=float(right), extracted=extraction.value, reason="right" if right else "wrong")
    if truncated:
        return Verdict(reward=None, extracted=None, reason="cut off")
    if extraction.status == "ambiguous":
        return Verdict(reward=None, extracted=None, reason="ambiguous")
    return Verdict(reward=0.0, extracted=None, reason="no answer found")
