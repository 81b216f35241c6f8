"""Unit tests of folds that leave out whole prompts."""

import pytest

from rangeline.conformal.prompt_folds import ids_of_rows, prompt_folds


def test_rows_of_a_prompt_are_left_out_together():
    """A prompt has one fold, also where both pools hold rows of it."""
    ids = (["a", "a", "b", "c", "d"], ["c", "e", "e", "f", "a"])
    fold_S, fold_D = prompt_folds(ids, seed=0)
    folds = {}
    for name, fold in zip([*ids[0], *ids[1]], [*fold_S, *fold_D], strict=True):
        folds.setdefault(name, set()).add(int(fold))
    assert {1} == {len(found) for found in folds.values()}


@pytest.mark.parametrize(
    "ids",
    [
        (list("abcdefg"), list("hijklm")),
        (list("ab"), list("bc")),
        (list("abc"), list("abc")),
        (["a"] * 9 + ["b"], list("cdefghij")),
        (list("ab"), list("bcdefghijk")),
    ],
)
def test_every_fold_and_what_it_leaves_hold_both_pools(ids):
    """No fold leaves a classifier, or its test, with one class."""
    fold_S, fold_D = prompt_folds(ids, seed=3)
    folds = set(fold_S.tolist()) | set(fold_D.tolist())
    assert folds == set(fold_S.tolist()) == set(fold_D.tolist()) == set(range(len(folds)))
    assert 2 <= len(folds) <= 5


def test_order_of_rows_changes_no_fold():
    """The fold of a prompt depends on the ids there are, not on where they stand."""
    first = dict(zip("abcdefgh", prompt_folds((list("abcdefgh"), list("stuvw")), seed=1)[0].tolist(), strict=True))
    again = dict(zip("hgfedcba", prompt_folds((list("hgfedcba"), list("wvuts")), seed=1)[0].tolist(), strict=True))
    assert first == again


@pytest.mark.parametrize("ids", [(["a"], ["b", "c"]), (["a", "b"], ["c", "c"]), ([], ["a", "b"])])
def test_one_prompt_cannot_be_folded(ids):
    """With one prompt in a pool nothing can be left out."""
    assert prompt_folds(ids, seed=0) is None


def test_rows_without_ids_are_prompts_of_their_own():
    """Made-up ids are distinct, and number the rows by their states."""
    source, target = ids_of_rows([[1], [0], [1]], [[0]], None)
    assert ["source 000000001", "source 000000000", "source 000000002"] == source
    assert ["target 000000000"] == target
