"""The suites whose answer is a number."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rangeline.errors import BadInputError
from rangeline.records import PromptRow
from rangeline.suites.grade_school_math import GradeSchoolMath
from rangeline.suites.reasoning_gym import ReasoningGym

SUITES = (ReasoningGym(), GradeSchoolMath())


def _row(reference: str | None) -> PromptRow:
    return PromptRow(prompt_id="p1", prompt="12 + 7?", suite="s", reference=reference)


numbers = st.one_of(st.integers(-(10**9), 10**9).map(str), st.decimals(-1000, 1000, places=2).map(str))


@settings(max_examples=60, deadline=None, database=None)
@given(numbers, st.integers(1, 9))
def test_rendered_reference_is_right_and_a_perturbed_one_wrong(reference, offset):
    """What a suite renders as right it verifies as right, and no other number."""
    other = f"{float(reference) + offset:.2f}"
    for suite in SUITES:
        completion = suite.render_reference(_row(reference))
        assert 1.0 == suite.verify(completion, _row(reference)).reward
        assert 0.0 == suite.verify(suite.render_reference(_row(other)), _row(reference)).reward


def test_instructions_name_the_form_of_the_reply():
    """Each suite asks for the form that it reads."""
    gym, school = (suite.render(_row("19")) for suite in SUITES)
    assert ["system", "user"] == [message.role for message in gym]
    assert "Reply with the number only." == gym[0].content
    assert "12 + 7?" == gym[1].content
    assert "####" in school[0].content


def test_worked_solution_serves_as_reference():
    """The part after the last #### of a worked solution is the answer, the whole is the right completion."""
    row = _row("First 12.\n#### 12\nThen 12 + 7 = 19.\n#### 19")
    assert row.reference == GradeSchoolMath().render_reference(row)
    assert "right" == GradeSchoolMath().verify("#### 19.0", row).reason
    assert "wrong" == GradeSchoolMath().verify("#### 12", row).reason


@pytest.mark.parametrize(
    ("suite", "completion", "truncated", "reward", "reason"),
    [
        (SUITES[0], "19", False, 1.0, "right"),
        (SUITES[0], "19", True, None, "cut off"),
        (SUITES[0], "19\nas 12", True, 1.0, "right"),
        (SUITES[0], "12 + 7 = 1", True, None, "cut off"),
        (SUITES[0], "12 or 19", False, None, "ambiguous"),
        (SUITES[0], "no idea", False, None, "no answer found"),
        (SUITES[1], "12 + 7\n#### 19", False, 1.0, "right"),
        (SUITES[1], "12 + 7\n#### 1", True, None, "cut off"),
        (SUITES[1], "#### 19\nThat is the numb", True, 1.0, "right"),
        (SUITES[1], "#### 18\nThat is the numb", True, 0.0, "wrong"),
        (SUITES[1], "no idea", False, None, "no answer found"),
    ],
)
def test_verdicts_on_complete_and_cut_off_completions(suite, completion, truncated, reward, reason):
    """A closed answer counts in a cut-off completion; a number at the cut does not."""
    verdict = suite.verify(completion, _row("19"), truncated=truncated)
    assert (reward, reason) == (verdict.reward, verdict.reason)


@pytest.mark.parametrize("suite", SUITES)
def test_unusable_references_are_refused(suite):
    """A row without reference, or with one that is no number, cannot be verified."""
    with pytest.raises(BadInputError, match="'reference' must be present"):
        suite.verify("19", _row(None))
    with pytest.raises(BadInputError, match="'reference' must be a number; got 'blue'"):
        suite.verify("#### 19", _row("blue"))
