"""Normalised texts, duplicates and clusters of near duplicates."""

import itertools

import pytest

from rangeline.errors import BadInputError, DataContractError
from rangeline.prompts.duplicates import find_duplicates, near_duplicate_clusters, normalise_text, text_of
from rangeline.records import ChatMessage, PromptRow

LONG = "A farmer keeps 12 hens and each of them lays 3 eggs on every working day of the week"


def _rows(*texts):
    return tuple(PromptRow(prompt_id=f"p{i}", prompt=text, suite="s") for i, text in enumerate(texts))


def _same(a, b, **settings):
    return len(set(near_duplicate_clusters(_rows(a, b), **settings))) == 1


@pytest.mark.parametrize(
    ("a", "b", "equal"),
    [
        ("What is 1,000 + 2?", "what  is 1000 + 2", True),
        ("5 \u2212 3", "5 - 3", True),
        ("5 - 3", "5 + 3", False),
        ("x\u00b2", "x2", False),
        ("1.5", "15", False),
        ("5!", "5", False),
    ],
)
def test_form_is_dropped_and_meaning_kept(a, b, equal):
    """Case, spaces and punctuation do not count; signs and digits do."""
    assert equal == (normalise_text(a) == normalise_text(b))


def test_text_without_words_is_kept():
    """A text of punctuation alone is its own normal form."""
    assert "..." == normalise_text(" ... ")


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        ("Calculate 12 + 7.", "Calculate 12 + 9.", False),
        ("Calculate 12 + 7.", "Calculate 7 + 12.", True),
        ("Calculate 12 + 7.", "calculate 12 + 7", True),
        ("Calculate 12 + 7.", "Calculate 12 - 7.", False),
        ("Calculate 12 + 7.", "Calculate 12 + 7 + 7.", False),
        (LONG, LONG.replace("farmer", "Farmers"), True),
        (LONG, LONG.replace("12", "13"), False),
        (LONG, "Completely different words with 12 and 3", False),
        ("", "", True),
    ],
)
def test_near_duplicates_differ_in_words_and_not_in_numbers(a, b, same):
    """Prompts are near duplicates when their numbers agree and their words nearly do."""
    assert same == _same(a, b)


def test_threshold_and_grams_decide():
    """Jaccard of {ab, bc} and {ab, bd} is 1/3: near duplicates at 1/3, not above."""
    assert _same("abc", "abd", ngram=2, threshold=1 / 3)
    assert not _same("abc", "abd", ngram=2, threshold=0.34)


def test_clusters_join_transitively():
    """If a is near b and b near c, all three share a cluster, though a is not near c."""
    a, b, c = "abcdefgh", "bcdefghi", "cdefghij"
    assert not _same(a, c, ngram=2, threshold=0.7)
    assert 1 == len(set(near_duplicate_clusters(_rows(a, b, c), ngram=2, threshold=0.7)))


def test_clusters_equal_those_of_all_pairs():
    """The filtered join finds exactly the pairs that comparing all of them finds."""
    texts = ["".join(word) for word in itertools.product("ab", repeat=5)]
    grams = [{text[i : i + 2] for i in range(4)} for text in texts]
    cluster = list(range(len(texts)))
    for i, j in itertools.combinations(range(len(texts)), 2):
        if len(grams[i] & grams[j]) >= 0.75 * len(grams[i] | grams[j]):
            cluster = [cluster[i] if one == cluster[j] else one for one in cluster]
    actual = near_duplicate_clusters(_rows(*texts), ngram=2, threshold=0.75)
    for i, j in itertools.combinations(range(len(texts)), 2):
        assert (cluster[i] == cluster[j]) == (actual[i] == actual[j])


def test_options_and_turns_are_part_of_the_question():
    """Equal questions with other options ask something else; system messages ask nothing."""
    row = PromptRow(prompt_id="a", prompt="Which?", suite="s", metadata={"options": ["x", "y"]})
    assert "Which?\nx\ny" == text_of(row)
    chat = (ChatMessage("system", "Be brief."), ChatMessage("user", "Which?"))
    assert "Which?" == text_of(PromptRow(prompt_id="a", prompt=chat, suite="s"))


def test_equal_texts_are_grouped():
    """Rows of one normalised text form a group; others are left out."""
    assert (("p0", "p2"),) == find_duplicates(_rows("1 + 1?", "1 + 2?", "1 + 1"))


def test_equal_ids_are_refused():
    """One id for two rows is an error."""
    with pytest.raises(DataContractError, match="'prompt_id' must be unique; got 'p0' in 2 rows"):
        find_duplicates(_rows("x") + _rows("y"))


@pytest.mark.parametrize(("ngram", "threshold"), [(0, 0.8), (5, 0.0), (5, 1.1), (5, float("nan"))])
def test_settings_out_of_range_are_refused(ngram, threshold):
    """Grams have a character at least, and the threshold lies in (0, 1]."""
    with pytest.raises(BadInputError, match=r"'ngram' must be >= 1 and 'threshold' in \(0, 1\]; got"):
        near_duplicate_clusters(_rows("x"), ngram=ngram, threshold=threshold)
