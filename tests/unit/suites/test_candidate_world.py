"""Word worlds: one order a seed, prompts that keep their secret, and words that are hard by design."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from rangeline.errors import BadInputError, ConfigError
from rangeline.prompts.contract import parse_rows
from rangeline.seeds import stream
from rangeline.suites.candidate_words import WORDS
from rangeline.suites.candidate_world import DESIGNS, LABELLED, World, draw_lists, make_world, world_prompts

SIZES = {"policy": 6, "ratio": 4, "source": 5, "calibration": 5, "audit": 3, "evaluation": 8}


def test_vocabulary_is_prefix_free():
    """No word begins with another, so that a cut-off word is never taken for a whole one."""
    ordered = sorted(WORDS)
    assert 256 == len(set(WORDS))
    assert not [a for a, b in itertools.pairwise(ordered) if b.startswith(a)]


def test_world_is_decided_by_its_seed():
    """The same seed gives the same world; another seed another order."""
    assert make_world("neutral", 16, seed=1) == make_world("neutral", 16, seed=1)
    assert make_world("neutral", 16, seed=1).ranking != make_world("neutral", 16, seed=2).ranking


@pytest.mark.parametrize("design", DESIGNS)
def test_designs_share_order_and_number_of_hard_words(design):
    """A design changes which words are hard, never how many nor what they are worth."""
    world, neutral = make_world(design, 20, seed=3), make_world("neutral", 20, seed=3)
    assert neutral.ranking == world.ranking
    assert 8 == len(world.hard)


def test_tilted_designs_move_hard_words_along_the_order():
    """Hard words are the worse ones on average in `worse`, the better ones in `better`, neither in `neutral`."""
    places = {}
    for design in ("better", "neutral", "worse"):
        worlds = [make_world(design, 40, seed=seed) for seed in range(60)]
        places[design] = np.mean([world.ranking.index(word) for world in worlds for word in world.hard])
    assert places["better"] < 17 < 18.5 < places["neutral"] < 20.5 < 22 < places["worse"]


def test_rewards_are_ranks_within_the_list():
    """Whatever the words, the best listed one is worth 1 and the worst 0, in equal steps."""
    world = make_world("neutral", 10, seed=0)
    listed = world.ranking[7], world.ranking[1], world.ranking[3]
    assert {listed[1]: 1.0, listed[2]: 0.5, listed[0]: 0.0} == world.rewards(listed)
    with pytest.raises(BadInputError, match="'candidates' must be words of the world; got 'eel'"):
        world.rewards(["eel", "fox"])


def test_pools_have_their_sizes_and_share_no_list():
    """Every pool gets its number of prompts, and no two prompts list the same words."""
    rows = parse_rows(world_prompts(make_world("neutral", 12, seed=0), SIZES, 4), source="world")
    assert SIZES == {pool: sum(row.share == pool for row in rows) for pool in SIZES}
    assert len(rows) == len({frozenset(row.prompt.split()) for row in rows})


def test_unlabelled_prompts_carry_nothing_of_the_order():
    """Policy and ratio prompts have neither reference nor metadata; the words' order on the list is random."""
    rows = parse_rows(world_prompts(make_world("neutral", 12, seed=0), SIZES, 4), source="world")
    for row in rows:
        assert (row.share in LABELLED) == (row.reference is not None)
        assert {} == row.metadata


def test_another_order_gives_the_same_unlabelled_prompts():
    """Unlabelled prompts do not depend on the hidden order: they could not betray it."""
    world = make_world("neutral", 12, seed=0)
    other = replace(world, ranking=world.ranking[::-1])
    unlabelled = [[row for row in world_prompts(one, SIZES, 4) if row["reference"] is None] for one in (world, other)]
    assert unlabelled[0] == unlabelled[1]


def test_domain_design_keeps_hard_words_from_calibration_alone():
    """In `domain`, source and calibration prompts hold few hard words; audit and policy prompts as many as ever."""
    world = make_world("domain", 40, seed=0)
    rows = world_prompts(world, dict.fromkeys(SIZES, 60), 8)
    share = {
        pool: np.mean([word in world.hard for row in rows if row["share"] == pool for word in row["prompt"].split()])
        for pool in SIZES
    }
    assert max(share["source"], share["calibration"]) < 0.2 < 0.3 < min(share["policy"], share["audit"])
    assert {"few_hard_words"} == {row["domain"] for row in rows if row["share"] == "calibration"}


def test_world_survives_json():
    """What is stored is the whole world, digest included."""
    world = make_world("guess", 8, seed=5)
    assert world == World.from_json(world.to_json())
    assert world.digest == World.from_json(world.to_json()).digest
    assert world.digest != replace(world, design="neutral").digest


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: make_world("odd", 8, seed=0), "'design' must be one of neutral, .*; got 'odd'"),
        (lambda: make_world("neutral", 257, seed=0), r"'words' must lie in \[2, 256\]; got 257"),
        (lambda: next(draw_lists(("a", "b"), 3, stream(0))), r"'candidates' must lie in \[2, 2\]; got 3"),
        (
            lambda: world_prompts(make_world("neutral", 4, seed=0), {"policy": 9}, 2),
            "'words' must give 9 more distinct lists; got 6",
        ),
    ],
)
def test_impossible_worlds_are_refused(call, message):
    """Unknown designs, too many words, and more prompts than there are lists are refused with the reason."""
    with pytest.raises(ConfigError, match=message):
        call()
