r"""Competition problems whose answer is an expression in `\boxed{}`: MATH-500, AIME, AMC, Minerva, OlympiadBench.

The reward is 1 where the last stated answer equals the reference as mathematics, else 0; nothing is divided or rounded.
A reference may be a whole worked solution, whose last box is the answer; several answers are a list of which all are
needed. Left out: proofs and figures. An answer out of noise is as likely as noise is to end in a stated expression,
below the bounds of docs/suites.md (6 in 100 printed characters), and it is right only by chance of its value.
"""

import re

from rangeline.records import ChatMessage, PromptRow
from rangeline.suites.answer_equivalence import canonical_number, parse_number
from rangeline.suites.base import Comparison, Extraction, Verdict, render_chat, require_reference, verdict_of
from rangeline.suites.expression_extraction import extract_expression
from rangeline.suites.expression_text import tidy_expression
from rangeline.suites.final_text import closed_part
from rangeline.suites.symbolic import compare_expressions, reference_is_readable

SYSTEM_PROMPT = r"Reason step by step, and put your final answer within \boxed{}."


def reference_answer(reference: str) -> str:
    r"""Return the answer of a reference: its last box or the part after `####`, where it holds one; else the whole."""
    if "\\boxed" in reference or re.search(r"\n####", reference):
        extraction = extract_expression(reference)
        return reference if extraction.value is None else extraction.value
    return reference


class CompetitionMath:
    """Suite of problems with an expression as answer."""

    name = "competition_math"

    def render(self, row: PromptRow) -> tuple[ChatMessage, ...]:
        r"""Return the problem under an instruction to reason and to end in a box."""
        return render_chat(row, SYSTEM_PROMPT)

    def render_reference(self, row: PromptRow) -> str:
        r"""Return the reference in a box; a worked solution as it is."""
        reference = require_reference(row)
        return reference if "\\boxed" in reference else rf"\boxed{{{reference_answer(reference)}}}"

    def extract(self, completion: str, row: PromptRow, *, truncated: bool = False) -> Extraction:
        """Return the last stated answer; a cut-off completion is read without its last word."""
        return extract_expression(closed_part(completion) if truncated else completion)

    def canonical(self, answer: str) -> str:
        """Return the number in one writing, or the expression in the writing of the parser."""
        return (
            canonical_number(answer) if parse_number(answer) is not None else tidy_expression(answer).replace(" ", "")
        )

    def reads_reference(self, row: PromptRow) -> bool:
        """Say whether other writings of a row's reference could be recognised."""
        return reference_is_readable(reference_answer(require_reference(row)))

    def verify(self, completion: str, row: PromptRow, *, truncated: bool = False) -> Verdict:
        """Return whether the stated answer equals the reference; missing where that cannot be said.

        Raises
        ------
        BadInputError
            If the row has no reference.
        """
        reference = reference_answer(require_reference(row))

        def compare(answer: str) -> Comparison:
            return compare_expressions(answer, reference)

        return verdict_of(self.extract(completion, row, truncated=truncated), compare, truncated=truncated)
