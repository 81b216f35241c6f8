"""Verdicts of extractions, rendering and references."""

import pytest

from rangeline.errors import BadInputError
from rangeline.records import ChatMessage, PromptRow
from rangeline.suites.base import ABSENT, AMBIGUOUS, Verdict, found, render_chat, require_reference, verdict_of


@pytest.mark.parametrize(
    ("extraction", "truncated", "expected"),
    [
        (found("4"), False, Verdict(reward=1.0, extracted="4", reason="right")),
        (found("4"), True, Verdict(reward=1.0, extracted="4", reason="right")),
        (found("5"), False, Verdict(reward=0.0, extracted="5", reason="wrong")),
        (ABSENT, False, Verdict(reward=None, extracted=None, reason="no answer found")),
        (ABSENT, True, Verdict(reward=None, extracted=None, reason="cut off")),
        (AMBIGUOUS, True, Verdict(reward=None, extracted=None, reason="cut off")),
        (AMBIGUOUS, False, Verdict(reward=None, extracted=None, reason="ambiguous")),
    ],
)
def test_verdict_follows_from_what_was_read(extraction, truncated, expected):
    """A found answer is right or wrong; silence is wrong; what was cut off or ambiguous is missing."""
    assert expected == verdict_of(extraction, lambda answer: answer == "4", truncated=truncated)


def test_text_prompt_is_put_under_the_instruction():
    """A text prompt becomes a system and a user message."""
    row = PromptRow(prompt_id="p", prompt="2 + 2?", suite="s")
    assert (ChatMessage("system", "Be brief."), ChatMessage("user", "2 + 2?")) == render_chat(row, "Be brief.")


def test_chat_prompt_is_used_as_it_is():
    """A prompt that is a chat already gets no other instruction."""
    chat = (ChatMessage("user", "2 + 2?"), ChatMessage("assistant", "4"), ChatMessage("user", "Sure?"))
    assert chat == render_chat(PromptRow(prompt_id="p", prompt=chat, suite="s"), "Be brief.", "other")


def test_unlabelled_row_cannot_be_verified():
    """A row without reference is refused by name."""
    with pytest.raises(BadInputError, match=r"'reference' must be present .* \(prompt 'p9', suite 's'\)"):
        require_reference(PromptRow(prompt_id="p9", prompt="x", suite="s"))
