"""Short calculations whose reply is one number and nothing else.

The reward is 1 where the number of the reply equals the reference exactly, else 0; nothing is divided. Questions come
from seeded generators (`prompts/ingest.py`); their own graders, which give partial credit, are left out, because a
reward interval is calibrated against a plain truth.
"""

from rangeline.records import ChatMessage, PromptRow
from rangeline.suites.answer_equivalence import canonical_number, numbers_equal
from rangeline.suites.answer_extraction import extract_bare_number
from rangeline.suites.base import Extraction, Verdict, render_chat, require_reference, verdict_of
from rangeline.suites.final_text import closed_part

SYSTEM_PROMPT = "Reply with the number only."


class ReasoningGym:
    """Suite of generated problems with an integer or decimal answer."""

    name = "reasoning_gym"

    def render(self, row: PromptRow) -> tuple[ChatMessage, ...]:
        """Return the question under an instruction to reply with the number only."""
        return render_chat(row, SYSTEM_PROMPT)

    def render_reference(self, row: PromptRow) -> str:
        """Return the reference itself."""
        return require_reference(row)

    def extract(self, completion: str, row: PromptRow, *, truncated: bool = False) -> Extraction:
        """Return the number of the reply; a cut-off reply is read without its last word."""
        return extract_bare_number(closed_part(completion) if truncated else completion, truncated=truncated)

    def canonical(self, answer: str) -> str:
        """Return the number in one writing."""
        return canonical_number(answer)

    def verify(self, completion: str, row: PromptRow, *, truncated: bool = False) -> Verdict:
        """Return whether the number of the reply equals the reference.

        Raises
        ------
        BadInputError
            If the row has no reference, or its reference is not a number.
        """
        reference = require_reference(row)
        extraction = self.extract(completion, row, truncated=truncated)
        return verdict_of(extraction, lambda answer: numbers_equal(answer, reference), truncated=truncated)
