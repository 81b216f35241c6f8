"""Cut a rollout before its answer and put the reference in the answer's place, token by token.

It computes the ids of a rollout's reasoning, the ids of what leads over to the answer, and the ids of the reference.
Spliced text = prompt ids + reasoning ids as sampled + encode(lead + reference).
Nothing is divided.
Reasoning is never encoded again; only a sampled token that holds the end of the reasoning and the start of the answer
is cut, and its first part is the lead. End-of-sequence and closing tags are left out: nothing after the reference.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rangeline.errors import DataContractError

_MARK = re.compile(r"####|\\boxed\{|<answer>|\b(?:answer|antwort|result)\b(?:\s+is)?\s*[:=]?", re.IGNORECASE)
"""What announces an answer; the answer's text right after the last one is the answer."""
_GAP = 12
"""Characters between an announcement and its answer, at most: brackets, bold marks, a currency sign."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spliced:
    """A rollout's reasoning with the reference in place of its answer."""

    reasoning_ids: tuple[int, ...]
    """The sampled ids before the answer."""
    lead_ids: tuple[int, ...]
    """Ids between reasoning and reference that hold no character of the reference; mostly none."""
    reference_ids: tuple[int, ...]
    """Ids that hold the reference, at least one."""

    @property
    def suffix_ids(self) -> tuple[int, ...]:
        """Everything after the prompt."""
        return (*self.reasoning_ids, *self.lead_ids, *self.reference_ids)


def answer_start(completion: str, answer: str) -> int | None:
    r"""Return where the final answer begins in a completion, None where its text does not stand there.

    Parameters
    ----------
    completion
        Text of a rollout.
    answer
        Text of its answer, as a suite read it.

    Returns
    -------
    int or None
        The place right after the last announcement that the answer follows; without one, the answer's last place.

    Examples
    --------
    >>> answer_start("6 * 7 = 42\n#### 42 or so 42", "42")
    16
    >>> answer_start("It is seven.", "7") is None
    True
    """
    if not answer:
        return None
    places = [found.start() for found in re.finditer(rf"(?<!\w){re.escape(answer)}(?!\w)", completion)]
    for mark in reversed(list(_MARK.finditer(completion))):
        following = next((place for place in places if 0 <= place - mark.end() <= _GAP), None)
        if following is not None:
            return following
    return places[-1] if places else None


def has_reasoning(completion: str, start: int) -> bool:
    r"""Return whether words or numbers stand before an answer and what announces it.

    Examples
    --------
    >>> has_reasoning("3 + 4 = 7\n#### 7", 15), has_reasoning("#### 7", 5), has_reasoning("**Answer:** 7", 12)
    (True, False, False)
    """
    before = completion[:start]
    marks = (found.start() for found in _MARK.finditer(before) if start - found.end() <= _GAP)
    return re.search(r"\w", before[: next(marks, start)]) is not None


def reference_lead(rendered: str, answer: str) -> str:
    r"""Return what leads over to the answer in a rendered reference: its last line up to the answer.

    Examples
    --------
    >>> reference_lead("6 * 7 = 42\n#### 42", "42"), reference_lead("42", "42")
    ('#### ', '')
    """
    place = answer_start(rendered, answer)
    return "" if place is None else rendered[:place].rsplit("\n", 1)[-1]


def encode_reference(tokenizer: Any, lead: str, reference: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the ids of the lead alone, and those that hold characters of the reference.

    Raises
    ------
    DataContractError
        When the reference has no token.
    """
    whole = [int(item) for item in tokenizer.encode(lead + reference, add_special_tokens=False)]
    before = [int(item) for item in tokenizer.encode(lead, add_special_tokens=False)] if lead else []
    # A token that joins lead and reference differs from the lead's own, and counts to the reference.
    shared = next((i for i, pair in enumerate(zip(before, whole, strict=False)) if pair[0] != pair[1]), len(before))
    shared = min(shared, len(whole))
    if not reference.strip() or shared == len(whole):
        msg = f"'reference' must have at least one token; got {reference!r:.60}. Correct the prompt's row."
        raise DataContractError(msg)
    return tuple(whole[:shared]), tuple(whole[shared:])


def splice(tokenizer: Any, token_ids: Sequence[int], completion: str, start: int, reference: str) -> Spliced:
    """Put the reference in the place of a rollout's answer.

    Parameters
    ----------
    tokenizer
        The policy's.
    token_ids
        The rollout's ids as sampled.
    completion
        Their text, special tokens left out.
    start
        Where the answer begins in the text.
    reference
        What to put there.

    Returns
    -------
    Spliced
        Its reasoning ids are the longest run of sampled ids whose text ends at or before `start`.
    """
    count = _tokens_before(tokenizer, token_ids, completion, start)
    text = _decode(tokenizer, token_ids[:count])
    lead_ids, reference_ids = encode_reference(tokenizer, completion[len(text) : start], reference)
    return Spliced(reasoning_ids=tuple(token_ids[:count]), lead_ids=lead_ids, reference_ids=reference_ids)


def _tokens_before(tokenizer: Any, token_ids: Sequence[int], completion: str, start: int) -> int:
    low, high = 0, len(token_ids)
    while low < high:
        middle = (low + high + 1) // 2
        if len(_decode(tokenizer, token_ids[:middle])) <= start:
            low = middle
        else:
            high = middle - 1
    # A cut inside a character of several bytes decodes to a mark of its own, which is no beginning of the text.
    while low and not completion.startswith(_decode(tokenizer, token_ids[:low])):
        low -= 1
    return low


def _decode(tokenizer: Any, token_ids: Sequence[int]) -> str:
    return str(tokenizer.decode(list(token_ids), skip_special_tokens=True)) if token_ids else ""
