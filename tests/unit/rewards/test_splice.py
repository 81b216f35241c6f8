"""Token-id splices: reasoning as sampled, the reference in the answer's place, nothing after it."""

import pytest
from tiny import tiny_byte_model

from rangeline.errors import DataContractError
from rangeline.rewards.splice import answer_start, encode_reference, reference_lead, splice


class Words:
    """A tokenizer whose tokens are given pieces of text; encoding takes the longest piece first."""

    def __init__(self, *pieces):
        """Keep the pieces, whose places are their ids."""
        self.pieces = list(pieces)

    def encode(self, text, add_special_tokens):
        """Return the ids of a text."""
        ids = []
        while text:
            piece = max((p for p in self.pieces if text.startswith(p)), key=len)
            ids.append(self.pieces.index(piece))
            text = text[len(piece) :]
        return ids

    def decode(self, ids, skip_special_tokens):
        """Return the text of some ids; ids beyond the pieces are special."""
        return "".join(self.pieces[i] for i in ids if i < len(self.pieces))


@pytest.mark.parametrize(
    ("completion", "answer", "expected"),
    [
        ("12 + 7 = 19", "19", 9),
        ("19? No.\n#### 19", "19", 13),
        ("#### 19 and 19 again", "19", 5),
        ("Answer: B. B is for Bob.", "B", 8),
        ("119 is 19", "19", 7),
        ("19", "19", 0),
        ("nineteen", "19", None),
        ("", "19", None),
        ("x", "", None),
        (r"so \boxed{ 42 }", "42", 11),
        ("The answer is C", "C", 14),
    ],
)
def test_answer_is_found_where_it_is_announced(completion, answer, expected):
    """The answer begins after its last announcement, else at its last place; parts of longer words are no answer."""
    assert expected == answer_start(completion, answer)


def test_lead_is_the_rendered_references_own():
    """What stands before the answer on its line leads over; a worked solution above it does not."""
    assert "#### " == reference_lead("3 + 4 = 7\n#### 7", "7")
    assert ("Answer: ", "") == (reference_lead("Answer: B", "B"), reference_lead("7", "7"))


def test_reasoning_ids_are_those_sampled():
    """Ids of the reasoning are kept although encoding its text anew would give others."""
    words = Words("a", "b", "ab", " 1", "7", " ", "9")
    sampled = [0, 1, 3]  # "ab 1" is written in another way than encode would: a, b
    made = splice(words, sampled, "ab 1", 3, "9")
    assert (0, 1) == made.reasoning_ids
    assert [2, 3] == words.encode("ab 1", add_special_tokens=False)


def test_blank_between_reasoning_and_answer_belongs_to_the_reference():
    """A token that holds a blank and the answer is cut; the blank leads over and the reference is scored alone."""
    words = Words("a", " 1", " ", "9", "=")
    made = splice(words, [0, 4, 1], "a= 1", 3, "9")
    assert ((0, 4), (2,), (3,)) == (made.reasoning_ids, made.lead_ids, made.reference_ids)


def test_token_that_joins_blank_and_reference_is_scored():
    """Where the tokenizer writes blank and reference as one token, that token is the reference."""
    words = Words("a", " 1", " ", "9", " 9")
    made = splice(words, [0, 1], "a 1", 2, "9")
    assert ((0,), (), (4,)) == (made.reasoning_ids, made.lead_ids, made.reference_ids)


def test_nothing_follows_the_reference():
    """What the rollout wrote after its answer, its end-of-sequence included, is left out."""
    words = Words("a", "1", "z", "9")
    made = splice(words, [0, 1, 2, 77], "a1z", 1, "9")
    assert (0, 3) == made.suffix_ids


def test_cut_inside_a_character_goes_back_to_a_whole_one():
    """On bytes, reasoning ends at a whole character, and the text of the splice is reasoning and reference."""
    _, tokenizer = tiny_byte_model()
    text = "né = 7"
    ids = tokenizer.encode(text, add_special_tokens=False)
    for start in range(len(text)):
        made = splice(tokenizer, ids, text, start, "12")
        assert tuple(ids[: len(made.reasoning_ids)]) == made.reasoning_ids
        assert text[:start] + "12" == tokenizer.decode(list(made.suffix_ids))


@pytest.mark.parametrize("reference", ["", " "])
def test_empty_reference_is_refused(reference):
    """A reference without a token is an error in the data, never a reward."""
    with pytest.raises(DataContractError, match="'reference' must have at least one token"):
        encode_reference(Words(" ", "a"), "a", reference)
