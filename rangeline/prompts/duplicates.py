"""Which prompts ask the same: normalised text, exact duplicates and clusters of near duplicates.

Two prompts are near duplicates when they hold the same numbers (as a multiset) and the Jaccard similarity of their
character n-grams, numbers masked, reaches a threshold: |A and B| / |A or B|. Clusters join pairs transitively. The
numbers rule is ours: in calculations the numbers are the question. The join is exact, by prefix filtering, where
others hash (MinHash), so that a cluster depends on its members alone and not on the order of the rows.
"""

import hashlib
import itertools
import math
import re
from collections import Counter, defaultdict
from collections.abc import Sequence

from rangeline.errors import BadInputError, DataContractError
from rangeline.records import PromptRow

# Signs of calculation are words of their own; sentence punctuation says nothing and is dropped.
_TOKEN = re.compile(r"[0-9]+(?:,[0-9]{3})*(?:\.[0-9]+)?|[^\W_]+|[^\w\s.,;?\"'`]")
_MINUS = str.maketrans("\u2212\u2013", "--")
_ROUNDING = 1e-9
"""Slack of float comparisons, so that a similarity equal to the threshold counts."""


def text_of(row: PromptRow) -> str:
    """Return what a row asks: its prompt without system messages, and its options where it has any."""
    if isinstance(row.prompt, str):
        parts = [row.prompt]
    else:
        parts = [turn.content for turn in row.prompt if turn.role != "system"]
    options = row.metadata.get("options", [])
    parts += [str(option) for option in options] if isinstance(options, list | tuple) else []
    return "\n".join(parts)


def words_of(text: str) -> tuple[str, ...]:
    """Return the words, numbers and signs of a text, small letters, thousands separators and punctuation dropped.

    Examples
    --------
    >>> words_of("What is 1,200 - 3?")
    ('what', 'is', '1200', '-', '3')
    """
    words = tuple(word.replace(",", "") for word in _TOKEN.findall(text.translate(_MINUS).casefold()))
    return words or (text.strip(),)


def normalise_text(text: str) -> str:
    """Return the words of a text parted by single spaces: equal for texts that differ in form only."""
    return " ".join(words_of(text))


def text_key(normalised: str) -> str:
    """Return a short hash of a normalised text."""
    return hashlib.sha256(normalised.encode()).hexdigest()[:16]


def find_duplicates(rows: Sequence[PromptRow]) -> tuple[tuple[str, ...], ...]:
    """Return the groups of prompt ids whose normalised texts are equal, in order of first appearance.

    Raises
    ------
    DataContractError
        If a prompt id occurs twice.
    """
    groups: dict[str, list[str]] = defaultdict(list)
    for prompt_id, count in Counter(row.prompt_id for row in rows).items():
        if count > 1:
            msg = f"'prompt_id' must be unique; got '{prompt_id}' in {count} rows. Rename or remove the others."
            raise DataContractError(msg)
    for row in rows:
        groups[normalise_text(text_of(row))].append(row.prompt_id)
    return tuple(tuple(ids) for ids in groups.values() if len(ids) > 1)


def _numbers_and_shape(normalised: str) -> tuple[tuple[str, ...], str]:
    words = normalised.split(" ")
    is_number = [word[:1].isdigit() for word in words]
    numbers = sorted(word for word, number in zip(words, is_number, strict=True) if number)
    return tuple(numbers), " ".join("0" if number else word for word, number in zip(words, is_number, strict=True))


def _grams(text: str, ngram: int) -> frozenset[str]:
    return frozenset(text[i : i + ngram] for i in range(max(1, len(text) - ngram + 1)))


class _Families:
    """Disjoint sets of the numbers 0 to n - 1."""

    def __init__(self, n: int) -> None:
        self.parent = list(range(n))

    def root(self, i: int) -> int:
        while self.parent[i] != i:
            self.parent[i] = self.parent[self.parent[i]]
            i = self.parent[i]
        return i

    def join(self, i: int, j: int) -> None:
        self.parent[self.root(i)] = self.root(j)


def _ranked_grams(texts: Sequence[str], ngram: int) -> list[list[int]]:
    """Return the n-grams of each text as ranks in ascending frequency: the rarest first."""
    grams = [{text[i : i + ngram] for i in range(max(1, len(text) - ngram + 1))} for text in texts]
    counts = Counter(itertools.chain.from_iterable(grams))
    # Any order of equally frequent n-grams finds the same pairs.
    rank = {gram: i for i, gram in enumerate(sorted(counts, key=counts.__getitem__))}
    return [sorted(map(rank.__getitem__, one)) for one in grams]


def _families_of(texts: Sequence[str], ngram: int, threshold: float) -> _Families:
    """Join all texts whose similarity reaches the threshold t, found through their rarest n-grams.

    Sets A and B that reach it share at least t / (1 + t) (|A| + |B|) n-grams, so they share one of the rarest
    |A| - ceil(t |A|) + 1 of each, and enough n-grams must be left after the first shared one.
    """
    ranked = _ranked_grams(texts, ngram)
    sets = [frozenset(ranks) for ranks in ranked]
    families = _Families(len(texts))
    # Rank to family to (text, position): a family that is joined already needs no second comparison.
    index: dict[int, dict[int, list[tuple[int, int]]]] = defaultdict(dict)
    for i in sorted(range(len(texts)), key=lambda k: len(ranked[k])):
        size = len(ranked[i])
        prefix = ranked[i][: size - math.ceil(threshold * size - _ROUNDING) + 1]
        compared: set[int] = set()
        for place, rank in enumerate(prefix):
            for family, members in index[rank].items():
                if families.root(family) == families.root(i):
                    continue
                for j, other_place in members:
                    needed = threshold / (1 + threshold) * (size + len(ranked[j])) - _ROUNDING
                    if j in compared or min(size - place, len(ranked[j]) - other_place) < needed:
                        continue
                    compared.add(j)
                    if len(sets[i] & sets[j]) >= needed:
                        families.join(i, j)
                        break
        # Later texts are no smaller, so they must share more than the smallest partner and need a shorter prefix.
        num_indexed = size - math.ceil(2 * threshold / (1 + threshold) * size - _ROUNDING) + 1
        for place, rank in enumerate(prefix[:num_indexed]):
            index[rank].setdefault(families.root(i), []).append((i, place))
    return families


def near_duplicate_clusters(rows: Sequence[PromptRow], *, ngram: int = 5, threshold: float = 0.8) -> tuple[str, ...]:
    """Return the cluster key of each row: equal for exact and near duplicates.

    The key is the smallest text hash in the cluster, so it depends on the members and not on the order of rows.

    Parameters
    ----------
    rows
        Prompt rows.
    ngram
        Characters in a gram, at least 1.
    threshold
        Jaccard similarity from which texts are near duplicates, in (0, 1].

    Returns
    -------
    tuple of str
        One key a row.

    Raises
    ------
    BadInputError
        If `ngram` or `threshold` is out of range.

    Notes
    -----
    Prefix and position filtering: Bayardo et al. 2007, Xiao et al. 2008. Equal multisets of numbers are required: ours.
    A later row may join two clusters or change a key; `split_pools` keeps old prompts in place all the same.
    """
    if ngram < 1 or not 0 < threshold <= 1:
        msg = f"'ngram' must be >= 1 and 'threshold' in (0, 1]; got {ngram} and {threshold}. Correct the settings."
        raise BadInputError(msg)
    texts = [normalise_text(text_of(row)) for row in rows]
    blocks: dict[tuple[str, ...], dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for text in dict.fromkeys(texts):
        numbers, shape = _numbers_and_shape(text)
        blocks[numbers][shape].append(text)
    key_of: dict[str, str] = {}
    for shapes in blocks.values():
        families = _families_of(list(shapes), ngram, threshold)
        members: dict[int, list[str]] = defaultdict(list)
        for i, same in enumerate(shapes.values()):
            members[families.root(i)] += same
        for family in members.values():
            key_of |= dict.fromkeys(family, min(text_key(text) for text in family))
    return tuple(key_of[text] for text in texts)
