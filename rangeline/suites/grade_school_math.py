"""Word problems in the manner of GSM8K: reasoning, then `#### number`.

The reward is 1 where the last marked number equals the reference exactly, else 0; nothing is divided. A reference may
hold the whole worked solution, whose part after the last `####` is the answer. The reasoning itself is not graded.
Noise is an answer in at most 1 of 100 random texts, for only marked numbers count.
"""

from rangeline.records import ChatMessage, PromptRow
from rangeline.suites.answer_equivalence import canonical_number, numbers_equal
from rangeline.suites.answer_extraction import extract_hashed_number
from rangeline.suites.base import Extraction, Verdict, render_chat, require_reference, verdict_of
from rangeline.suites.final_text import closed_part

SYSTEM_PROMPT = "Reason step by step. End with one last line of the form '#### number', for example '#### 42'."


class GradeSchoolMath:
    """Suite of word problems with a number as answer."""

    name = "grade_school_math"

    def render(self, row: PromptRow) -> tuple[ChatMessage, ...]:
        """Return the problem under an instruction to reason and to end with `#### number`."""
        return render_chat(row, SYSTEM_PROMPT)

    def render_reference(self, row: PromptRow) -> str:
        """Return the worked solution where the reference holds one, else `#### number`."""
        reference = require_reference(row)
        return reference if "####" in reference else f"#### {reference}"

    def extract(self, completion: str, row: PromptRow, *, truncated: bool = False) -> Extraction:
        """Return the last marked number; a cut-off completion is read without its last word."""
        return extract_hashed_number(closed_part(completion) if truncated else completion)

    def canonical(self, answer: str) -> str:
        """Return the number in one writing."""
        return canonical_number(answer)

    def verify(self, completion: str, row: PromptRow, *, truncated: bool = False) -> Verdict:
        """Return whether the marked number equals the reference's.

        Raises
        ------
        BadInputError
            If the row has no reference, or its answer is not a number.
        """
        reference = require_reference(row).rpartition("####")[2].strip()
        extraction = self.extract(completion, row, truncated=truncated)
        return verdict_of(extraction, lambda answer: numbers_equal(answer, reference), truncated=truncated)
