"""Generated problems whose reply is an answer and nothing else: any reasoning-gym generator by name.

Where the reference is a number the reward is 1 where the reply's number equals it exactly, else 0. Elsewhere it is 1
where the generator's own scorer gives its full score, else 0, for many such problems have several right answers; the
partial credit of those scorers is left out, because a reward interval is calibrated against a plain truth. Nothing is
divided. An answer out of noise: any text is an answer where a scorer decides, and up to 4 of 10 replies of random
characters hold a lone number, which is right by chance of its value only.
"""

from rangeline.records import ChatMessage, PromptRow
from rangeline.suites.answer_equivalence import canonical_number, numbers_equal, parse_number
from rangeline.suites.answer_extraction import extract_bare_number
from rangeline.suites.base import (
    ABSENT,
    Comparison,
    Extraction,
    Verdict,
    found,
    render_chat,
    require_reference,
    verdict_of,
)
from rangeline.suites.expression_extraction import extract_tagged
from rangeline.suites.final_text import closed_part, visible_text
from rangeline.suites.symbolic import score_generated

SYSTEM_PROMPT = "Reply with the number only."
TEXT_PROMPT = "Solve the problem. Put your final answer, and nothing else, between <answer> and </answer>."


def is_numeric(row: PromptRow) -> bool:
    """Say whether a row's answer is a number; `metadata.answer_form` is `text` where it is not."""
    return row.metadata.get("answer_form") != "text"


class ReasoningGym:
    """Suite of generated problems."""

    name = "reasoning_gym"

    def render(self, row: PromptRow) -> tuple[ChatMessage, ...]:
        """Return the question under an instruction on the form of the reply."""
        return render_chat(row, SYSTEM_PROMPT if is_numeric(row) else TEXT_PROMPT)

    def render_reference(self, row: PromptRow) -> str:
        """Return the reference in the form that was asked for."""
        reference = require_reference(row)
        return reference if is_numeric(row) else f"<answer>{reference}</answer>"

    def extract(self, completion: str, row: PromptRow, *, truncated: bool = False) -> Extraction:
        """Return the number of the reply, or its tagged answer, or the whole of it; a cut-off reply by its tag only."""
        if is_numeric(row):
            return extract_bare_number(closed_part(completion) if truncated else completion, truncated=truncated)
        tagged = extract_tagged(completion)
        if tagged.status == "found" or truncated:
            return tagged
        reply = visible_text(completion).strip()
        return found(reply) if reply else ABSENT

    def canonical(self, answer: str) -> str:
        """Return the number in one writing; other answers with single spaces."""
        return canonical_number(answer) if parse_number(answer) is not None else " ".join(answer.split())

    def verify(self, completion: str, row: PromptRow, *, truncated: bool = False) -> Verdict:
        """Return whether the reply is right; missing where the generator's scorer failed.

        Raises
        ------
        BadInputError
            If the row has no reference, or its answer should be a number and is none.
        """
        reference = require_reference(row)

        def compare(answer: str) -> bool | Comparison:
            if is_numeric(row):
                return numbers_equal(answer, reference)
            said = score_generated(row.metadata.get("problem", {}), str(row.prompt), answer)
            return said.value == 1.0 if isinstance(said.value, float) else Comparison(None, said.reason)

        return verdict_of(self.extract(completion, row, truncated=truncated), compare, truncated=truncated)
