"""Put a prompt under a condition: the chat that leads the starting policy to one anchor.

Placeholders are filled in one pass, from streams keyed by seed, prompt id, side and template, so that an anchor is
asked alike in whatever process and order. A prompt or a reference is data: what looks like a placeholder in it stays.
"""

from collections.abc import Sequence

from rangeline.errors import AnchorError
from rangeline.prompts.conditions import PLACEHOLDER, Conditions, Shares, Stratum, Template
from rangeline.prompts.perturb import corrupted_text, masked_text, partial_text, reasoning_of
from rangeline.records import ChatMessage, PromptRow
from rangeline.seeds import stream

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def condition_prompt(
    conditions: Conditions,
    row: PromptRow,
    messages: Sequence[ChatMessage],
    *,
    stratum: Stratum,
    number: int,
    seed: int,
    use_reference: bool = True,
) -> tuple[ChatMessage, ...]:
    """Return a prompt's chat under the condition of one anchor.

    Parameters
    ----------
    conditions
        The file that serves the row.
    row
        The prompt, with its reference where it has one.
    messages
        Its chat as the suite renders it; the last turn is the user's.
    stratum, number
        Which anchor: its side, and its number from 0. Anchors of one template share its text.
    seed
        Run seed of the streams that hide and spoil.
    use_reference
        False puts a labelled prompt as if it had no reference.

    Raises
    ------
    AnchorError
        When the row has no usable conditions, or its reference cannot be hidden or spoilt.
    """
    strata = conditions.strata_of(row, use_reference=use_reference)
    templates: tuple[Template, ...] = getattr(strata, stratum)
    template = templates[number % len(templates)]
    values = _Values(conditions.shares, row, messages[-1].content, (seed, stratum, number % len(templates)))
    message, system = (
        PLACEHOLDER.sub(lambda match: values.of(match.group(1)), text) for text in (template.message, template.system)
    )
    shown = [
        turn
        for item in template.examples
        for turn in (ChatMessage("user", item.prompt), ChatMessage("assistant", item.completion))
    ]
    turns = [*messages[:-1], *shown, ChatMessage(messages[-1].role, message)]
    if system and turns[0].role == "system":
        turns[0] = ChatMessage("system", f"{turns[0].content}\n{system}")
    elif system:
        turns.insert(0, ChatMessage("system", system))
    return tuple(turns)


class _Values:
    """What stands for each placeholder; made only when asked for, as not every reference can be spoilt."""

    def __init__(self, shares: Shares, row: PromptRow, prompt: str, key: tuple[int, Stratum, int]) -> None:
        self._shares, self._row, self._prompt, self._key = shares, row, prompt, key

    def of(self, name: str) -> str:
        reference, shares = self._row.reference or "", self._shares
        seed, stratum, number = self._key
        rng = stream(seed, f"conditions/{name}", stratum, number, self._row.prompt_id)
        try:
            match name:
                case "prompt":
                    return self._prompt
                case "misread":
                    return corrupted_text(self._prompt, shares.corrupt, rng)
                case "partial":
                    return partial_text(reasoning_of(reference), shares.keep)
                case "masked":
                    return masked_text(reasoning_of(reference), shares.mask, rng)
                case "corrupted":
                    return corrupted_text(reference, shares.corrupt, rng, self._letters())
                case _:
                    return reference
        except AnchorError as error:
            msg = f"{error} (prompt '{self._row.prompt_id}', suite '{self._row.suite}')"
            raise AnchorError(msg) from error

    def _letters(self) -> tuple[str, ...]:
        options = self._row.metadata.get("options", [])
        return tuple(_LETTERS[: len(options)]) if isinstance(options, list | tuple) else ()
