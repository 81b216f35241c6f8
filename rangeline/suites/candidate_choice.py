"""Choose one of N listed words, without being told by what rule.

The reward is ``(N - 1 - rank) / (N - 1)`` for a listed word, rank 0 being the best, and 0 for any other reply; nothing
is divided further. The prompt is the list and nothing else; the reference is the same words, best first.
Only the first word of a completion is read: what follows it is no second choice.
"""

from collections.abc import Mapping
from functools import lru_cache

from rangeline.errors import DataContractError
from rangeline.records import ChatMessage, PromptRow
from rangeline.suites.base import ABSENT, SILENT, Extraction, Verdict, found, require_reference
from rangeline.suites.candidate_world import SUITE, rank_rewards

PROMPT_END = " >"
"""Closes the list, so that the choice comes next."""


def candidates_of(row: PromptRow) -> tuple[str, ...]:
    """Return the listed words of a row, in their order.

    Raises
    ------
    DataContractError
        If the prompt is a chat, or does not list two or more distinct words.
    """
    listed = _listed(row.prompt) if isinstance(row.prompt, str) else ()
    if not listed:
        msg = (
            f"'prompt' must list 2 or more distinct words; got {str(row.prompt)[:80]!r} (prompt '{row.prompt_id}'). "
            "Correct the row or choose another suite."
        )
        raise DataContractError(msg)
    return listed


@lru_cache(maxsize=8192)
def _listed(prompt: str) -> tuple[str, ...]:
    """Return the words of a prompt; none where they are not two or more distinct ones."""
    words = tuple(prompt.split())
    return words if len(words) >= 2 and len(set(words)) == len(words) else ()


@lru_cache(maxsize=8192)
def _beginnings(words: tuple[str, ...]) -> frozenset[str]:
    """Return what may still become one of the words: every beginning that is not the whole word."""
    return frozenset(word[:length] for word in words for length in range(len(word)))


@lru_cache(maxsize=8192)
def _rewards(reference: str) -> Mapping[str, float]:
    return rank_rewards(reference.split())


class CandidateChoice:
    """Suite of word lists whose answer is one listed word, rewarded by its rank."""

    name = SUITE

    def render(self, row: PromptRow) -> tuple[ChatMessage, ...]:
        """Return the list, closed by a mark."""
        return (ChatMessage("user", " ".join(candidates_of(row)) + PROMPT_END),)

    def render_reference(self, row: PromptRow) -> str:
        """Return the best word."""
        return self._ranking(row)[0]

    def extract(self, completion: str, row: PromptRow, *, truncated: bool = False) -> Extraction:
        """Return the first word of a completion, listed or not.

        A word at the very end of a cut-off completion is read where it cannot have become another listed word.
        """
        words = completion.split()
        if not words:
            return ABSENT
        word = words[0]
        may_go_on = truncated and completion.endswith(word) and len(words) == 1
        if may_go_on and word in _beginnings(candidates_of(row)):
            return ABSENT
        return found(word)

    def canonical(self, answer: str) -> str:
        """Return the word itself."""
        return answer

    def verify(self, completion: str, row: PromptRow, *, truncated: bool = False) -> Verdict:
        """Return the reward of the chosen word by its rank.

        Raises
        ------
        BadInputError
            If the row has no reference.
        DataContractError
            If the reference is not the listed words, each once.
        """
        self._ranking(row)
        rewards = _rewards(require_reference(row))
        answer = self.extract(completion, row, truncated=truncated).value
        if answer is None:
            return Verdict(reward=None, extracted=None, reason="cut off" if truncated else SILENT)
        reward = rewards.get(answer, 0.0)
        reason = "right" if reward == 1 else "scored" if reward > 0 else "wrong"
        return Verdict(reward=reward, extracted=answer, reason=reason)

    def _ranking(self, row: PromptRow) -> tuple[str, ...]:
        ranking = _listed(require_reference(row))
        if set(ranking) != set(candidates_of(row)):
            msg = (
                f"'reference' must be the listed words, best first; got {row.reference!r:.80} (prompt "
                f"'{row.prompt_id}'). Correct the row."
            )
            raise DataContractError(msg)
        return ranking
