"""Candidate selection as a suite: what is read from a completion, and what it is worth."""

import pytest

from rangeline.errors import BadInputError, DataContractError
from rangeline.records import ChatMessage, PromptRow
from rangeline.suites.candidate_choice import CandidateChoice, candidates_of

SUITE = CandidateChoice()


def _row(prompt="fox owl bat", reference="owl bat fox"):
    return PromptRow(prompt_id="p", prompt=prompt, suite=SUITE.name, reference=reference)


def test_prompt_is_the_list_and_its_mark():
    """The prompt shows the words and where the choice comes, and nothing of the order."""
    assert (ChatMessage("user", "fox owl bat >"),) == SUITE.render(_row())
    assert SUITE.render(_row()) == SUITE.render(_row(reference=None))


@pytest.mark.parametrize(
    ("completion", "reward", "reason"),
    [
        ("owl", 1.0, "right"),
        ("bat", 0.5, "partly right"),
        ("fox", 0.0, "wrong"),
        ("eel", 0.0, "wrong"),
        (" owl fox", 1.0, "right"),
        ("Owl", 0.0, "wrong"),
        ("", 0.0, "no answer found"),
    ],
)
def test_reward_is_the_rank_of_the_first_word(completion, reward, reason):
    """The best of N words is worth 1, the worst 0, steps are equal, and any other reply is worth 0."""
    verdict = SUITE.verify(completion, _row())
    assert (reward, reason) == (verdict.reward, verdict.reason)


def test_rendered_reference_is_worth_one():
    """The best word scores right against the ranking."""
    assert 1.0 == SUITE.verify(SUITE.render_reference(_row()), _row()).reward


@pytest.mark.parametrize(
    ("completion", "status"), [("car", "absent"), ("cart", "found"), ("car ", "found"), ("xy", "found"), ("", "absent")]
)
def test_cut_off_word_counts_only_where_it_is_whole(completion, status):
    """A cut-off word that could have become another listed one is no answer; whatever else is one."""
    row = _row("car cart bat", "cart car bat")
    assert status == SUITE.extract(completion, row, truncated=True).status


def test_cut_off_reply_without_answer_is_missing():
    """Nothing read from a cut-off completion is a missing reward, never 0."""
    assert (None, "cut off") == (
        SUITE.verify("", _row(), truncated=True).reward,
        SUITE.verify("", _row(), truncated=True).reason,
    )


@pytest.mark.parametrize("prompt", ["fox", "fox fox", (ChatMessage("user", "fox owl"),)])
def test_prompt_must_be_a_list(prompt):
    """A chat, a single word or a repeated word is refused."""
    with pytest.raises(DataContractError, match=r"'prompt' must list 2 or more distinct words; got .*prompt 'p'"):
        candidates_of(_row(prompt))


@pytest.mark.parametrize("reference", ["owl", "owl bat eel", "owl owl bat fox"])
def test_reference_must_rank_the_listed_words(reference):
    """A reference that is not the list in another order is refused."""
    with pytest.raises(DataContractError, match="'reference' must be the listed words, best first"):
        SUITE.verify("owl", _row(reference=reference))


def test_unlabelled_row_has_no_verdict():
    """Without a reference there is nothing to verify against."""
    with pytest.raises(BadInputError, match="'reference' must be present"):
        SUITE.verify("owl", _row(reference=None))
