"""The judge of a word world: it sees the truth through noise, and some candidates unclearly.

Computes the judgment state of a choice from its true reward Y: the rating is ``floor(L (Y + noise))`` within L levels,
and the flag `clear` says how much noise there was. Noise and clarity are drawn once for each (prompt, candidate) from a
stream of the world's seed, so that the same choice is judged alike whenever it is made, by whatever policy.
Nothing is divided.
No model is asked and nothing is cached: a verdict is one look-up. The form of the judge is ours; the paper that
describes the task names none.

Shapes: N rollouts, K coordinates.
"""

import hashlib
from bisect import bisect_right
from collections.abc import Mapping, Sequence

import numpy as np

from rangeline.errors import ConfigError
from rangeline.judge.coordinates import (
    AgreementCoordinate,
    ChoiceCoordinate,
    Coordinate,
    MajorityCoordinate,
    RankCoordinate,
    ScoreCoordinate,
)
from rangeline.judge.groups import agreement_shares, majority_levels
from rangeline.judge.rubric import Rubric
from rangeline.records import UNKNOWN, JudgmentTable, RolloutSet
from rangeline.seeds import stream
from rangeline.suites.candidate_world import DESIGNS, HARD_SHARE, World

RATING, CLEAR = "rating", "clear"
UNCLEAR_LEVEL, CLEAR_LEVEL = 0, 1


class SyntheticJudge:
    """Judges choices in one world, on the coordinates of a rubric.

    Parameters
    ----------
    world
        Whose truth it sees.
    rubric
        Coordinates: a choice `rating` of any number of levels, a choice `clear` of two, and agreement or well-formed
        coordinates as for any judge.

    Raises
    ------
    ConfigError
        If the rubric asks for anything else.
    """

    def __init__(self, world: World, rubric: Rubric) -> None:
        self.world, self.rubric = world, rubric
        self.digest = hashlib.sha256(f"synthetic {world.digest} {rubric.digest}".encode()).hexdigest()
        self._num_ratings = _num_ratings(rubric)
        self._states: dict[str, dict[str, tuple[int, int]]] = {}

    def judge(
        self, rollouts: RolloutSet, *, candidates: Mapping[str, Sequence[str]], extracted_N: Sequence[str | None]
    ) -> JudgmentTable:
        """Return the judgment state of every rollout.

        Parameters
        ----------
        rollouts
            N rollouts, in any order; groups are formed by prompt id.
        candidates
            Listed words of each prompt id.
        extracted_N
            Chosen word of each rollout; a word that is not listed, or None, has every choice coordinate UNKNOWN.
        """
        ids = rollouts.prompt_id_N
        seen = {prompt_id: self.states(prompt_id, candidates[prompt_id]) for prompt_id in set(ids)}
        invalid = (UNKNOWN, UNKNOWN)
        chosen = [seen[prompt_id].get(word or "", invalid) for prompt_id, word in zip(ids, extracted_N, strict=True)]
        shares = agreement_shares(ids, extracted_N)
        columns = {item.name: _column(item, chosen, shares, extracted_N, rollouts) for item in self.rubric.coordinates}
        return JudgmentTable(
            prompt_id_N=ids,
            levels_NK=np.array(list(columns.values()), dtype=np.int8).T.reshape(len(ids), len(columns)),
            missing_N=np.zeros(len(ids), dtype=bool),
            coordinates=tuple(columns),
            num_levels=tuple(len(item.levels) for item in self.rubric.coordinates),
            judge_digest=self.digest,
        )

    def states(self, prompt_id: str, candidates: Sequence[str]) -> dict[str, tuple[int, int]]:
        """Return rating and clarity of every candidate of a prompt, whoever chooses it and when."""
        known = self._states.get(prompt_id)
        if known is None:
            known = self._states[prompt_id] = self._draw(prompt_id, candidates)
        return known

    def _draw(self, prompt_id: str, candidates: Sequence[str]) -> dict[str, tuple[int, int]]:
        design, rng = DESIGNS[self.world.design], stream(self.world.seed, "judge", prompt_id)
        size = len(candidates)
        hardness, haze, error = rng.random(size), rng.random(size), rng.standard_normal(size)
        truth = self.world.rewards(candidates)
        states = {}
        # Draws belong to words, not to places in the list.
        for i, word in enumerate(sorted(candidates)):
            hard = hardness[i] < HARD_SHARE if design.by_candidate else word in self.world.hard
            unclear = haze[i] < (design.unclear_hard if hard else design.unclear_easy)
            noise = design.unclear_noise if unclear else design.clear_noise
            rating = UNKNOWN if noise is None else self._rating(truth[word] + noise * float(error[i]))
            states[word] = (rating, UNCLEAR_LEVEL if unclear else CLEAR_LEVEL)
        return states

    def _rating(self, seen: float) -> int:
        return min(int(max(seen, 0.0) * self._num_ratings), self._num_ratings - 1)


def _num_ratings(rubric: Rubric) -> int:
    for item in rubric.coordinates:
        judged = isinstance(item, ChoiceCoordinate | ScoreCoordinate | RankCoordinate)
        fits = not judged or (isinstance(item, ChoiceCoordinate) and item.name == RATING)
        is_flag = isinstance(item, ChoiceCoordinate) and item.name == CLEAR and len(item.levels) == 2
        if not fits and not is_flag:
            msg = (
                f"'coordinates' of a synthetic judge must be choices '{RATING}' and '{CLEAR}' (of two levels), "
                f"agreement, majority or well_formed; got '{item.name}' of {len(item.levels)} levels. "
                "Correct judge.rubric."
            )
            raise ConfigError(msg)
    levels = next((len(item.levels) for item in rubric.coordinates if item.name == RATING), None)
    if levels is None:
        names = [item.name for item in rubric.coordinates]
        msg = f"'coordinates' of a synthetic judge must hold '{RATING}'; got {names}. Correct judge.rubric."
        raise ConfigError(msg)
    return levels


def _column(
    item: Coordinate,
    chosen: Sequence[tuple[int, int]],
    shares: Sequence[float | None],
    extracted_N: Sequence[str | None],
    rollouts: RolloutSet,
) -> list[int]:
    if isinstance(item, AgreementCoordinate):
        return [UNKNOWN if share is None else bisect_right(item.cuts, share) for share in shares]
    if isinstance(item, MajorityCoordinate):
        return majority_levels(rollouts.prompt_id_N, extracted_N)
    if isinstance(item, ChoiceCoordinate):
        return [state[0 if item.name == RATING else 1] for state in chosen]
    ended = zip(extracted_N, rollouts.finish_reason_N, strict=True)
    return [int(answer is not None and reason == "stop") for answer, reason in ended]
