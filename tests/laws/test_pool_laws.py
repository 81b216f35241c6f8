"""Laws of the pools: nobody moves, near duplicates stay together, order says nothing."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from rangeline.prompts.ingest import near_duplicate_clusters
from rangeline.prompts.pools import PoolSplit, prove_disjoint, split_pools
from rangeline.records import PromptRow

LABELLED = {"warmup": 0.2, "source": 0.3, "calibration": 0.3, "audit": 0.1, "evaluation": 0.1}
UNLABELLED = {"policy": 0.6, "ratio": 0.4}
WORDINGS = ("Calculate {} + {}.", "Calculate {} + {}", "Work out the sum of {} and {}, please", "Add {} to {}")


def _rows(triples):
    rows = {}
    for wording, a, b, labelled in triples:
        prompt_id = f"{wording}-{a}-{b}"
        rows[prompt_id] = PromptRow(
            prompt_id=prompt_id,
            prompt=WORDINGS[wording].format(a, b),
            suite="s",
            reference=str(a + b) if labelled else None,
        )
    return list(rows.values())


prompts = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 6), st.integers(0, 6), st.booleans()), max_size=25).map(
    _rows
)


def _split(rows, previous=None, **clustering) -> PoolSplit:
    return split_pools(
        rows,
        cluster_N=near_duplicate_clusters(rows, **clustering),
        labelled_shares=LABELLED,
        unlabelled_shares=UNLABELLED,
        key="k",
        previous=previous,
    )


@settings(max_examples=60, deadline=None, database=None)
@given(prompts, prompts, st.sampled_from([0.3, 0.8]))
def test_adding_rows_moves_no_old_prompt_to_another_pool(old, more, threshold):
    """With the earlier pools given, every old prompt keeps its pool or is excluded, and the proof still holds."""
    before = _split(old, threshold=threshold).pool_of
    known = {row.prompt_id for row in old}
    grown = old + [row for row in more if row.prompt_id not in known]
    after = _split(grown, previous=before, threshold=threshold)
    assert all(pool == after.pool_of.get(prompt_id, pool) for prompt_id, pool in before.items())
    prove_disjoint(after)


@settings(max_examples=30, deadline=None, database=None)
@given(prompts)
def test_the_same_rows_again_change_nothing(rows):
    """A split that is given its own pools gives the same split."""
    first = _split(rows)
    assert first.pool_of == _split(rows, previous=first.pool_of).pool_of


@settings(max_examples=30, deadline=None, database=None)
@given(prompts, st.randoms(use_true_random=False))
def test_order_of_rows_says_nothing(rows, shuffler: random.Random):
    """Clusters and pools depend on the rows and not on their order."""
    shuffled = shuffler.sample(rows, len(rows))
    expected = {row.prompt_id: key for row, key in zip(rows, near_duplicate_clusters(rows), strict=True)}
    actual = {row.prompt_id: key for row, key in zip(shuffled, near_duplicate_clusters(shuffled), strict=True)}
    assert expected == actual
    assert _split(rows) == _split(shuffled)


@settings(max_examples=30, deadline=None, database=None)
@given(prompts)
def test_near_duplicates_share_a_pool(rows):
    """All prompts of a cluster that have a pool have the same one, and labelled rows are in no unlabelled pool."""
    split = _split(rows)
    pools_of = {}
    for item in split.placements:
        if item.pool is not None:
            pools_of.setdefault(item.cluster, set()).add(item.pool)
            assert (item.row.reference is None) == (item.pool in UNLABELLED)
    assert all(1 == len(pools) for pools in pools_of.values())
    prove_disjoint(split)


def test_unrelated_rows_move_nobody_even_without_the_earlier_split():
    """Where no cluster grows, the hash alone keeps every prompt in place."""
    old = _rows([(0, a, b, a % 2 == 0) for a in range(8) for b in range(a, 8)])
    new = _rows([(0, a, b, a % 2 == 0) for a in range(20, 28) for b in range(a, 28)])
    before, after = _split(old).pool_of, _split(old + new).pool_of
    assert before == {prompt_id: after.get(prompt_id) for prompt_id in before}


def test_a_new_evaluation_prompt_costs_no_old_prompt_its_pool():
    """A new evaluation prompt that repeats the words of an old training prompt is left out, and the old one stays."""
    words = "the ferry to the northern island leaves at seven in the morning from pier {}"
    old = [PromptRow(prompt_id="old", prompt=words.format("nine"), suite="s", reference=None)]
    new = PromptRow(
        prompt_id="new",
        prompt=f"{words.format('nine')} and carries eleven passengers, two dogs and a piano; how many are they?",
        suite="s",
        reference="14",
        share="evaluation",
    )
    before = _split(old).pool_of
    after = _split([*old, new], previous=before)
    assert before == after.pool_of
    assert [("new", "its words occur in older training prompts (was for pool 'evaluation')")] == [
        (item.row.prompt_id, item.reason) for item in after.excluded
    ]
    assert "old" in {item.row.prompt_id for item in _split([*old, new]).excluded}
