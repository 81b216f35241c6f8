"""Questions with 2 to 10 lettered options, in the manner of MMLU.

The reward is 1 where the chosen letter is the reference's, else 0; nothing is divided and guessing is not corrected
for. Options stand in the row's metadata under `options`; an answer may repeat the text of one in place of its letter.
Noise chooses an option in at most 3 of 100 random texts, and then the right one in one of their number.
"""

from rangeline.errors import DataContractError
from rangeline.records import ChatMessage, PromptRow
from rangeline.suites.base import Extraction, Verdict, render_chat, require_reference, verdict_of
from rangeline.suites.choice_extraction import LETTERS, extract_choice
from rangeline.suites.final_text import closed_part

SYSTEM_PROMPT = (
    "Answer the question. End with one last line of the form 'Answer: X', where X is the letter of one option."
)


def options_of(row: PromptRow) -> tuple[str, ...]:
    """Return the options of a row.

    Raises
    ------
    DataContractError
        If `metadata["options"]` is not a list of 2 to 10 non-blank strings.
    """
    given = row.metadata.get("options")
    options = tuple(given) if isinstance(given, list | tuple) else ()
    are_texts = all(isinstance(option, str) and option.strip() for option in options)
    if not are_texts or not 2 <= len(options) <= len(LETTERS):
        msg = (
            f"'metadata.options' must be a list of 2 to {len(LETTERS)} non-blank strings; got {str(given)[:80]} "
            f"(prompt '{row.prompt_id}'). Give the options or choose another suite."
        )
        raise DataContractError(msg)
    return options


class MultipleChoice:
    """Suite of questions whose answer is the letter of an option."""

    name = "multiple_choice"

    def render(self, row: PromptRow) -> tuple[ChatMessage, ...]:
        """Return the question with its lettered options."""
        lines = [f"{letter}. {option}" for letter, option in zip(LETTERS, options_of(row), strict=False)]
        question = "\n".join([row.prompt, *lines]) if isinstance(row.prompt, str) else None
        return render_chat(row, SYSTEM_PROMPT, question)

    def render_reference(self, row: PromptRow) -> str:
        """Return `Answer: X` with the reference's letter."""
        return f"Answer: {self._reference_letter(row)}"

    def extract(self, completion: str, row: PromptRow, *, truncated: bool = False) -> Extraction:
        """Return the chosen letter; a cut-off completion is read without its last word."""
        options = options_of(row)
        return extract_choice(closed_part(completion) if truncated else completion, len(options), options)

    def canonical(self, answer: str) -> str:
        """Return the letter itself."""
        return answer

    def verify(self, completion: str, row: PromptRow, *, truncated: bool = False) -> Verdict:
        """Return whether the chosen letter is the reference's.

        Raises
        ------
        BadInputError
            If the row has no reference, its options are unusable, or its reference is no option's letter.
        """
        letter = self._reference_letter(row)
        extraction = self.extract(completion, row, truncated=truncated)
        return verdict_of(extraction, lambda answer: answer == letter, truncated=truncated)

    def _reference_letter(self, row: PromptRow) -> str:
        letter = require_reference(row).strip().upper()
        allowed = LETTERS[: len(options_of(row))]
        if len(letter) != 1 or letter not in allowed:
            msg = (
                f"'reference' must be a letter from A to {allowed[-1]}; got {letter[:80]!r} (prompt "
                f"'{row.prompt_id}'). Correct the row."
            )
            raise DataContractError(msg)
        return letter
