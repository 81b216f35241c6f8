"""Pools: who goes where, who is excluded and why, and the proof of disjointness."""

import dataclasses

import pytest

from rangeline.errors import PoolError
from rangeline.prompts.pools import POOLS, Placement, PoolSplit, prove_disjoint, require_pools, split_pools
from rangeline.records import PromptRow

LABELLED = {"warmup": 0.2, "source": 0.3, "calibration": 0.3, "audit": 0.1, "evaluation": 0.1}
UNLABELLED = {"policy": 0.7, "ratio": 0.3}


def _row(prompt_id, reference=None, share="train", prompt=None):
    return PromptRow(
        prompt_id=prompt_id, prompt=prompt or f"word{prompt_id}", suite="s", reference=reference, share=share
    )


def _split(rows, clusters=None, labelled=LABELLED, unlabelled=UNLABELLED, **options):
    keys = clusters or [row.prompt_id for row in rows]
    return split_pools(rows, cluster_N=keys, labelled_shares=labelled, unlabelled_shares=unlabelled, key="k", **options)


def _reasons(split):
    return {item.row.prompt_id: item.reason for item in split.excluded}


def test_labels_decide_which_shares_apply():
    """Labelled rows fill labelled pools and unlabelled rows the others, near their shares."""
    rows = [_row(f"l{i}", "1") for i in range(1000)] + [_row(f"u{i}") for i in range(1000)]
    counts = _split(rows).counts
    assert 2000 == sum(counts.values())
    for pool, share in (LABELLED | UNLABELLED).items():
        assert counts[pool] == pytest.approx(1000 * share, abs=60)


def test_zero_share_takes_nothing_and_one_takes_all():
    """A share of 0 leaves a pool empty, a share of 1 fills it."""
    rows = [_row(f"l{i}", "1") for i in range(20)] + [_row(f"u{i}") for i in range(20)]
    counts = _split(rows, labelled={"source": 1.0, "audit": 0.0}, unlabelled={"ratio": 0.0, "policy": 1.0}).counts
    assert dict.fromkeys(POOLS, 0) | {"source": 20, "policy": 20} == counts


def test_another_key_gives_another_split():
    """The split depends on the key."""
    rows = [_row(f"u{i}") for i in range(30)]
    options = {
        "cluster_N": [row.prompt_id for row in rows],
        "labelled_shares": LABELLED,
        "unlabelled_shares": UNLABELLED,
    }
    assert split_pools(rows, key="a", **options).pool_of != split_pools(rows, key="b", **options).pool_of


def test_reserved_rows_decide_for_their_cluster():
    """A reserved row takes its labelled near duplicates with it; unlabelled ones are excluded."""
    rows = [_row("a", "1", "audit"), _row("b", "1"), _row("c"), _row("e", "1", "evaluation")]
    split = _split(rows, ["x", "x", "x", "y"])
    assert {"a": "audit", "b": "audit", "e": "evaluation"} == split.pool_of
    assert {"c": "has no reference, but it or a near duplicate is in labelled pool 'audit'"} == _reasons(split)


def test_evaluation_wins_over_audit():
    """A cluster reserved for both is evaluation's, and its audit row is excluded."""
    split = _split([_row("a", "1", "audit"), _row("e", "1", "evaluation")], ["x", "x"])
    assert {"e": "evaluation"} == split.pool_of
    assert {"a": "reserved for audit, but it or a near duplicate is in pool 'evaluation'"} == _reasons(split)


def test_labelled_rows_win_over_unlabelled():
    """A mixed cluster goes to a labelled pool, and its unlabelled rows are excluded, not moved."""
    split = _split([_row("a"), _row("b", "1")], ["x", "x"], labelled={"source": 1.0})
    assert {"b": "source"} == split.pool_of
    assert ["a"] == list(_reasons(split))


def test_old_pool_that_no_longer_fits_excludes():
    """An old prompt whose reference or share changed is excluded; it is never moved."""
    rows = [_row("now_labelled", "1"), _row("now_unlabelled"), _row("now_audit", "1", "audit"), _row("kept", "1")]
    old = {"now_labelled": "policy", "now_unlabelled": "source", "now_audit": "warmup", "kept": "evaluation"}
    split = _split(rows, previous=old)
    assert {"kept": "evaluation"} == split.pool_of
    assert {
        "now_labelled": "has a reference, but it or a near duplicate is in unlabelled pool 'policy'",
        "now_unlabelled": "has no reference, but it or a near duplicate is in labelled pool 'source'",
        "now_audit": "reserved for audit, but it or a near duplicate is in pool 'warmup'",
    } == _reasons(split)


def test_new_row_between_two_old_pools_is_excluded():
    """A row that joins clusters of two pools is excluded; the old rows stay and the proof holds."""
    rows = [_row("a", "1"), _row("b", "1"), _row("new", "1")]
    split = _split(rows, ["x", "x", "x"], previous={"a": "source", "b": "calibration"})
    assert {"a": "source", "b": "calibration"} == split.pool_of
    assert {"new": "near duplicate of prompts in several pools: calibration, source"} == _reasons(split)
    assert 0 == prove_disjoint(split)["source|calibration"]["clusters"]


def test_training_prompts_that_occur_in_evaluation_are_excluded():
    """A training prompt whose words occur in an evaluation prompt is excluded with the words; audit is not training."""
    rows = [
        _row("e", "1", "evaluation", "Please calculate 12 + 7 now"),
        _row("p", None, "train", "Calculate 12 + 7"),
        _row("q", None, "train", "Calculate 12 + 9"),
        _row("a", "1", "audit", "calculate 12"),
    ]
    split = _split(rows, unlabelled={"policy": 1.0})
    assert {"e": "evaluation", "q": "policy", "a": "audit"} == split.pool_of
    assert {"p": "words 'calculate 12 + 7' occur in an evaluation prompt (was for pool 'policy')"} == _reasons(split)


@pytest.mark.parametrize(
    ("labelled", "unlabelled", "match"),
    [
        ({"source": 0.5}, UNLABELLED, "'labelled_shares' must sum to 1; got 0.5"),
        ({"source": 1.5, "audit": -0.5}, UNLABELLED, r"'labelled_shares.audit' must be in \[0, 1\]; got -0.5"),
        (LABELLED, {"policy": float("nan")}, r"'unlabelled_shares.policy' must be in \[0, 1\]; got nan"),
        (
            LABELLED,
            {"policy": 0.5, "source": 0.5},
            "'unlabelled_shares' must name pools among policy, ratio; got 'source'",
        ),
        (LABELLED, {}, "'unlabelled_shares' must sum to 1; got 0"),
        (LABELLED, {"policy": 1 + 1e-8}, "'unlabelled_shares' must sum to 1; got 1.00000001"),
    ],
)
def test_unusable_shares_are_refused(labelled, unlabelled, match):
    """Shares are non-negative, sum to 1 and name their own pools."""
    with pytest.raises(PoolError, match=match):
        _split([_row("a")], labelled=labelled, unlabelled=unlabelled)


def test_shares_may_sum_to_one_within_rounding():
    """Ten tenths are one."""
    thirds = {"warmup": 0.1, "source": 0.2, "calibration": 0.3, "audit": 0.1 + 0.2, "evaluation": 0.1}
    assert 1 == len(_split([_row("a", "1")], labelled=thirds).pool_of)


def test_unusable_rows_are_refused():
    """Lengths agree, ids are unique and old pools are known."""
    with pytest.raises(PoolError, match="'cluster_N' must have one key a row; got 2 for 1 rows"):
        _split([_row("a")], ["x", "y"])
    with pytest.raises(PoolError, match="'prompt_id' must be unique; got 'a' in 2 rows"):
        _split([_row("a"), _row("a")])
    with pytest.raises(PoolError, match=r"'previous' must name pools among policy, .*; got 'train' \(prompt 'a'\)"):
        _split([_row("a")], previous={"a": "train"})


def _seeded(*items):
    return PoolSplit(placements=tuple(Placement(row=_row(i), cluster=c, pool=p) for i, c, p in items))


def test_proof_counts_every_pair():
    """A disjoint split gives 0 for each of the 21 pairs of pools."""
    proof = prove_disjoint(_seeded(("a", "x", "policy"), ("b", "y", "ratio"), ("c", "x", None)))
    assert 21 == len(proof)
    assert all({"prompts": 0, "clusters": 0} == counts for counts in proof.values())


def test_proof_fails_on_a_seeded_overlap():
    """A prompt or a cluster in two pools breaks the proof and is named."""
    with pytest.raises(PoolError, match=r"'policy' and 'ratio' must be disjoint; got 1 common prompts .*prompt 'a'"):
        prove_disjoint(_seeded(("a", "x", "policy"), ("a", "y", "ratio")))
    with pytest.raises(PoolError, match=r"'source' and 'calibration' .*got 0 common prompts and 1 .*prompt 'a'"):
        prove_disjoint(_seeded(("a", "x", "source"), ("b", "x", "calibration")))


def test_empty_pools_are_refused_with_the_share_to_raise():
    """A required pool that is empty says from how many prompts it drew; other pools may be empty."""
    split = _split([_row("a", "1"), _row("b"), _row("c")], labelled={"source": 1.0}, unlabelled={"policy": 1.0})
    require_pools(split, ["source", "policy"])
    with pytest.raises(PoolError, match=r"'ratio' pool .* got 0 \(drawn from 2 unlabelled .*'unlabelled_shares.ratio'"):
        require_pools(split, ["source", "ratio"])
    with pytest.raises(PoolError, match=r"'audit' pool .* got 0 \(drawn from 1 labelled .*'labelled_shares.audit'"):
        require_pools(split, ["audit"])
    with pytest.raises(PoolError, match=r"'names' must be pools among policy, .*; got 'train'"):
        require_pools(split, ["train"])


def test_split_names_every_prompt_once():
    """Pools and exclusions together hold every prompt, sorted by id."""
    rows = [_row("b"), _row("a", "1"), _row("c")]
    split = _split(rows, ["x", "x", "y"])
    assert ["a", "b", "c"] == [item.row.prompt_id for item in split.placements]
    assert ["c"] == [row.prompt_id for pool in ("policy", "ratio") for row in split.rows(pool)]
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign"):
        split.placements = ()
