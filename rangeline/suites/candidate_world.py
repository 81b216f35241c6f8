"""A world of words with a hidden order: its prompts, its true rewards, and how hard each word is to judge.

A prompt lists N distinct words; the reward of a word is ``(N - 1 - rank) / (N - 1)``, rank 0 being the best of them.
Prompts never show the order. Labelled ones carry their ranking as reference; unlabelled ones carry nothing, so that
their rewards exist in the world alone, which a synthetic judge and an oracle read and nothing else.
The task is Range-GRPO's candidate selection in outline; sizes, designs and every probability here are ours.

Shapes: W words, N candidates of a prompt.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np

from rangeline.errors import BadInputError, ConfigError
from rangeline.seeds import stream
from rangeline.suites.candidate_words import WORDS

SUITE = "candidate_choice"
HARD_SHARE = 0.4
UNLABELLED = ("policy", "ratio")
LABELLED = ("source", "calibration", "audit", "evaluation")
FEW_HARD = ("source", "calibration")
"""Pools that hold few hard words in the design `domain`; audit prompts are of the policy's own distribution."""
_TILT = 0.8
"""Chance weights of being hard run from 1 - tilt to 1 + tilt along the order, in designs that depend on it."""
_DRAWS_PER_LIST = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """How well the judge can see the words of a world."""

    tilt: float = 0.0
    """Positive: better words are more often hard; negative: worse ones."""
    unclear_easy: float = 0.15
    """Probability that an easy word is judged unclearly."""
    unclear_hard: float = 0.85
    by_candidate: bool = False
    """True: a word is hard in one prompt and easy in another."""
    clear_noise: float = 0.15
    """Standard deviation of the judge's error on a clear candidate."""
    unclear_noise: float | None = None
    """The same on an unclear one; None: the judge gives it no rating."""
    hard_weight: float = 1.0
    """Chance weight of a hard word in a labelled source or calibration prompt; 1 elsewhere, as for easy words."""


DESIGNS: Mapping[str, Design] = MappingProxyType(
    {
        "neutral": Design(),
        "worse": Design(tilt=-_TILT),
        "better": Design(tilt=_TILT),
        "instance": Design(by_candidate=True),
        "milder": Design(unclear_easy=0.10, unclear_hard=0.60),
        "guess": Design(unclear_noise=1.0),
        "informative": Design(unclear_noise=0.6),
        "homogeneous": Design(clear_noise=0.3, unclear_noise=0.3),
        "domain": Design(hard_weight=0.1),
    }
)
"""What the flag `unclear` means: in the first two it helps an interval-aware estimator, in others it misleads it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Words with their hidden order; make it with `make_world`."""

    design: str
    seed: int
    ranking: tuple[str, ...]
    """All W words, best first."""
    hard: tuple[str, ...]
    """The words that are hard to judge, sorted; meaningless where hardness belongs to a candidate."""

    def ranked(self, candidates: Sequence[str]) -> tuple[str, ...]:
        """Return the candidates, best first; an unknown word raises BadInputError."""
        place = _places(self.ranking)
        for word in candidates:
            if word not in place:
                msg = f"'candidates' must be words of the world; got '{word}'. Use the world the prompts came from."
                raise BadInputError(msg)
        return tuple(sorted(candidates, key=place.__getitem__))

    def rewards(self, candidates: Sequence[str]) -> dict[str, float]:
        """Return the true reward of each candidate."""
        return rank_rewards(self.ranked(candidates))

    @property
    def words(self) -> tuple[str, ...]:
        """The W words in the order of the vocabulary, which says nothing."""
        return WORDS[: len(self.ranking)]

    @property
    def digest(self) -> str:
        """Return the sha256 of all that the world decides."""
        content = json.dumps([self.to_json(), asdict(DESIGNS[self.design])], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """Return the world as plain values."""
        return {"design": self.design, "seed": self.seed, "ranking": list(self.ranking), "hard": list(self.hard)}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "World":
        """Read what `to_json` gave."""
        return cls(
            design=content["design"],
            seed=int(content["seed"]),
            ranking=tuple(content["ranking"]),
            hard=tuple(content["hard"]),
        )


@lru_cache(maxsize=64)
def _places(ranking: tuple[str, ...]) -> Mapping[str, int]:
    return {word: place for place, word in enumerate(ranking)}


def rank_rewards(ranked: Sequence[str]) -> dict[str, float]:
    """Return ``(N - 1 - rank) / (N - 1)`` of N words that are given best first.

    Examples
    --------
    >>> rank_rewards(["owl", "fox", "bat"])
    {'owl': 1.0, 'fox': 0.5, 'bat': 0.0}
    """
    last = len(ranked) - 1
    return {word: (last - rank) / last for rank, word in enumerate(ranked)}


def make_world(design: str, num_words: int, *, seed: int) -> World:
    """Return the world of a seed: the same order for every design, and 40 % of its words hard.

    Parameters
    ----------
    design
        A key of `DESIGNS`.
    num_words
        W, at least 2 and at most as many as there are words.
    seed
        Any integer.

    Raises
    ------
    ConfigError
        If there is no such design, or not so many words.
    """
    if design not in DESIGNS:
        msg = f"'design' must be one of {', '.join(DESIGNS)}; got '{design}'. Correct data.world."
        raise ConfigError(msg)
    if not 2 <= num_words <= len(WORDS):
        msg = f"'words' must lie in [2, {len(WORDS)}]; got {num_words}. Correct data.world."
        raise ConfigError(msg)
    order = stream(seed, "world", "order").permutation(num_words)
    quality = np.linspace(1.0, -1.0, num_words)
    weight = 1 + DESIGNS[design].tilt * quality
    num_hard = round(HARD_SHARE * num_words)
    hard = stream(seed, "world", "hard").choice(num_words, size=num_hard, replace=False, p=weight / weight.sum())
    ranking = tuple(WORDS[i] for i in order)
    return World(design=design, seed=seed, ranking=ranking, hard=tuple(sorted(ranking[i] for i in hard)))


def draw_lists(
    words: Sequence[str], num_candidates: int, rng: np.random.Generator, *, weights: Sequence[float] | None = None
) -> Iterator[tuple[str, ...]]:
    """Yield lists of distinct words without end.

    Parameters
    ----------
    words
        W words.
    num_candidates
        N, from 2 to W.
    rng
        Source of the draws.
    weights
        Chance weight of each word; None: all alike.

    Raises
    ------
    ConfigError
        If N is out of range.
    """
    if not 2 <= num_candidates <= len(words):
        msg = f"'candidates' must lie in [2, {len(words)}]; got {num_candidates}. Correct data.world."
        raise ConfigError(msg)
    chance = None if weights is None else np.asarray(weights, dtype=np.float64) / np.sum(weights)
    while True:
        yield tuple(words[i] for i in rng.choice(len(words), size=num_candidates, replace=False, p=chance))


def world_prompts(world: World, sizes: Mapping[str, int], num_candidates: int) -> list[dict[str, Any]]:
    """Return the raw prompt rows of every pool, no two of which list the same words.

    Parameters
    ----------
    world
        Where the words and the references come from.
    sizes
        Number of prompts of each pool.
    num_candidates
        N, from 2 to W.

    Returns
    -------
    list of dict
        Rows of the data contract, reserved for their pools; only labelled pools have references, the ranking.

    Raises
    ------
    ConfigError
        If N is out of range, or the world has too few distinct lists.
    """
    seen: set[frozenset[str]] = set()
    rows = []
    for pool in (*LABELLED, *UNLABELLED):
        for listed in _distinct(_pool_lists(world, pool, num_candidates), sizes.get(pool, 0), seen):
            name = hashlib.sha256(" ".join(listed).encode()).hexdigest()[:12]
            few = pool in FEW_HARD and DESIGNS[world.design].hard_weight != 1
            rows.append(
                {
                    "prompt_id": f"words-{name}",
                    "prompt": " ".join(listed),
                    "suite": SUITE,
                    "domain": "few_hard_words" if few else "words",
                    "reference": " ".join(world.ranked(listed)) if pool in LABELLED else None,
                    "share": pool,
                }
            )
    return rows


def _pool_lists(world: World, pool: str, num_candidates: int) -> Iterator[tuple[str, ...]]:
    factor = DESIGNS[world.design].hard_weight if pool in FEW_HARD else 1.0
    weights = [factor if word in world.hard else 1.0 for word in world.words]
    return draw_lists(world.words, num_candidates, stream(world.seed, "world", "prompts", pool), weights=weights)


def _distinct(lists: Iterator[tuple[str, ...]], count: int, seen: set[frozenset[str]]) -> Iterator[tuple[str, ...]]:
    made = 0
    for draw, listed in enumerate(lists):
        if made == count:
            return
        if draw >= _DRAWS_PER_LIST * (count + 1):
            msg = f"'words' must give {count} more distinct lists; got {made}. Take more words or smaller pools."
            raise ConfigError(msg)
        if frozenset(listed) not in seen:
            seen.add(frozenset(listed))
            made += 1
            yield listed
