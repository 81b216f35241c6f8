"""The suite of lettered options."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rangeline.errors import BadInputError, DataContractError
from rangeline.records import ChatMessage, PromptRow
from rangeline.suites.multiple_choice import LETTERS, MultipleChoice

SUITE = MultipleChoice()


def _row(num_options: int = 4, reference: str | None = "B") -> PromptRow:
    options = [f"option {i}" for i in range(num_options)]
    return PromptRow(
        prompt_id="p1", prompt="Which?", suite="multiple_choice", reference=reference, metadata={"options": options}
    )


@settings(max_examples=60, deadline=None, database=None)
@given(st.integers(2, 10), st.data())
def test_rendered_reference_is_right_and_every_other_letter_wrong(num_options, data):
    """What the suite renders as right it verifies as right, and no other letter."""
    right, other = data.draw(st.permutations(LETTERS[:num_options]))[:2]
    row = _row(num_options, right)
    assert 1.0 == SUITE.verify(SUITE.render_reference(row), row).reward
    assert 0.0 == SUITE.verify(SUITE.render_reference(_row(num_options, other)), row).reward


def test_options_are_lettered_under_the_question():
    """The user message lists the options that exist."""
    assert "Which?\nA. option 0\nB. option 1" == SUITE.render(_row(2))[1].content
    chat = (ChatMessage("user", "Which?"),)
    row = PromptRow(prompt_id="p", prompt=chat, suite="multiple_choice", metadata={"options": ["x", "y"]})
    assert chat == SUITE.render(row)


def test_letter_at_the_cut_is_missing():
    """A letter may be the start of a word, so one at the cut is not read."""
    assert None is SUITE.verify("The answer is B", _row(), truncated=True).reward
    assert 1.0 == SUITE.verify("The answer is B.\nThis", _row(), truncated=True).reward
    assert "wrong" == SUITE.verify("Answer: C", _row()).reason
    assert None is SUITE.verify("Answer: A or B", _row()).reward


@pytest.mark.parametrize("options", [None, ["one"], "AB", ["x"] * 11, ["x", ""], ["x", 3]])
def test_unusable_options_are_refused(options):
    """Options are 2 to 10 non-blank strings."""
    row = PromptRow(prompt_id="p7", prompt="Which?", suite="m", reference="A", metadata={"options": options})
    with pytest.raises(DataContractError, match=r"'metadata.options' must be a list of 2 to 10 .*prompt 'p7'"):
        SUITE.verify("Answer: A", row)


@pytest.mark.parametrize("reference", ["E", "", "AB", "option 1"])
def test_reference_must_be_the_letter_of_an_option(reference):
    """A reference that is no option's letter is refused."""
    with pytest.raises(DataContractError, match=r"'reference' must be a letter from A to D; got .*prompt 'p1'"):
        SUITE.verify("Answer: A", _row(4, reference))


def test_unlabelled_row_is_refused():
    """A row without reference cannot be verified."""
    with pytest.raises(BadInputError, match="'reference' must be present"):
        SUITE.verify("Answer: A", _row(4, None))
