"""Prompts without one right answer: summaries and long answers, scored by their overlap with references.

The reward is the largest ROUGE-L F-measure over the references, in [0, 1]: twice the longest common subsequence of
stemmed words over the words of both. References stand in `metadata.references`, or the row has one. Left out: meaning;
ROUGE reads letters a to z and digits only, so other scripts have no words for it. Noise always counts as an answer, and
scores what its words share with the reference: 0 for random characters, often 0.1 to 0.2 for random English.
"""

import re
from functools import lru_cache
from typing import Any

from rangeline.errors import DataContractError
from rangeline.records import ChatMessage, PromptRow
from rangeline.suites.base import ABSENT, Extraction, Verdict, found, render_chat, require_reference, verdict_of
from rangeline.suites.final_text import closed_part, visible_text

SYSTEM_PROMPT = "Write the reply itself, without a preface."
_MARK = re.compile(r"^[^\w\n]{0,8}(?:summary|tl;?dr|answer)[^\w\n:]{0,8}:[^\w\n]{0,8}", re.IGNORECASE | re.MULTILINE)


@lru_cache(maxsize=1)
def _scorer() -> Any:
    # Imported here because it takes seconds, and only this suite needs it.
    from rouge_score.rouge_scorer import RougeScorer

    return RougeScorer(["rougeL"], use_stemmer=True)


def references_of(row: PromptRow) -> tuple[str, ...]:
    """Return the references of a labelled row.

    Raises
    ------
    BadInputError
        If the row is not labelled, or `metadata.references` is no list of non-blank texts.
    """
    reference = require_reference(row)
    given = row.metadata.get("references", [reference])
    if (
        not isinstance(given, list | tuple)
        or not given
        or not all(isinstance(one, str) and one.strip() for one in given)
    ):
        msg = (
            f"'metadata.references' must be a list of non-blank texts; got {str(given)[:80]} (prompt "
            f"'{row.prompt_id}'). Correct the row."
        )
        raise DataContractError(msg)
    return tuple(given)


class OpenEnded:
    """Suite of prompts whose replies are scored by overlap."""

    name = "open_ended"

    def render(self, row: PromptRow) -> tuple[ChatMessage, ...]:
        """Return the prompt under an instruction to write the reply only."""
        return render_chat(row, SYSTEM_PROMPT)

    def render_reference(self, row: PromptRow) -> str:
        """Return the reference itself."""
        return references_of(row)[0]

    def extract(self, completion: str, row: PromptRow, *, truncated: bool = False) -> Extraction:
        """Return the reply outside its thinking, after a mark such as `Summary:` where one opens a line."""
        text = visible_text(closed_part(completion) if truncated else completion)
        marks = list(_MARK.finditer(text))
        reply = (text[marks[-1].end() :] if marks else text).strip()
        return found(reply) if reply else ABSENT

    def canonical(self, answer: str) -> str:
        """Return the reply in small letters with single spaces."""
        return " ".join(answer.casefold().split())

    def verify(self, completion: str, row: PromptRow, *, truncated: bool = False) -> Verdict:
        """Return the overlap with the nearest reference; a reply that was cut off is missing.

        Raises
        ------
        BadInputError
            If the row has no usable reference.
        """
        references = references_of(row)
        extraction = ABSENT if truncated else self.extract(completion, row)
        if extraction.value is None:
            return verdict_of(extraction, lambda _: False, truncated=truncated)
        overlap = max(_scorer().score(reference, extraction.value)["rougeL"].fmeasure for reference in references)
        return Verdict(reward=float(overlap), extracted=extraction.value, reason="scored")
