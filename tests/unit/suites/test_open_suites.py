"""The suites of free-form and open answers, and of generated problems whose answer is no number."""

import pytest

from rangeline.errors import DataContractError
from rangeline.prompts.ingest import generate_problems
from rangeline.records import PromptRow
from rangeline.suites.competition_math import CompetitionMath, reference_answer
from rangeline.suites.free_form import ANSWER_TYPES, FreeForm
from rangeline.suites.open_ended import OpenEnded
from rangeline.suites.reasoning_gym import ReasoningGym


def _row(suite, reference, **metadata):
    return PromptRow(prompt_id="p4", prompt="q?", suite=suite.name, reference=reference, metadata=metadata)


FREE = FreeForm()


@pytest.mark.parametrize(
    ("kind", "reference", "answer", "tolerance", "outcome"),
    [
        ("integer", "42", "42.0", 0, "right"),
        ("integer", "42", "43", 0.04, "wrong"),
        ("float", "2.0", "2.07", 0.04, "right"),
        ("float", "2.0", "2.09", 0.04, "wrong"),
        ("float", "-2.0", "-2.07", 0.04, "right"),
        ("float", "2.0", "2.07", 0, "wrong"),
        ("float", "0.785", r"\frac{\pi}{4}", 0.01, "right"),
        ("float", "0", "0.001", 0.04, "wrong"),
        ("percentage", "50%", r"50\%", 0, "right"),
        ("percentage", "50%", "0.5", 0, "right"),
        ("percentage", "50%", "51%", 0.01, "wrong"),
        ("fraction", "3/4", "0.75", 0, "right"),
        ("expression", "(x+1)^2", "x^2+2x+1", 0, "right"),
        ("matrix", r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{bmatrix}1\\2\end{bmatrix}", 0, "right"),
        ("list", "[1, 2.0]", "[1.01, 2.02]", 0.04, "right"),
        ("list", "[1, 2.0]", "[2.02, 1.01]", 0.04, "wrong"),
        ("list", "[1, 2]", "[1, 2, 3]", 0.04, "wrong"),
        ("boolean", "True", "yes", 0, "right"),
        ("boolean", "True", "False", 0, "wrong"),
        ("boolean", "perhaps", "yes", 0, "missing"),
        ("string", "the Pauli principle", "Pauli Principle", 0, "right"),
        ("string", "the Pauli principle", "principle", 0, "wrong"),
    ],
)
def test_each_type_has_its_rule_and_its_stated_tolerance(kind, reference, answer, tolerance, outcome):
    """An answer is judged by the rule of its type; only decimals have a tolerance, and only a stated one."""
    row = _row(FREE, reference, answer_type=kind, tolerance=tolerance)
    assert outcome == FREE.verify(rf"\boxed{{{answer}}}", row).outcome


def test_option_is_a_letter():
    """The type `option` reads letters as multiple choice does."""
    row = _row(FREE, "(b)", answer_type="option")
    assert "right" == FREE.verify("The answer is (B).", row).outcome
    assert "right" == FREE.verify(FREE.render_reference(row), row).outcome
    assert "missing" == FREE.verify("I cannot tell.", row).outcome


@pytest.mark.parametrize("kind", ANSWER_TYPES)
def test_prompt_and_parser_agree_for_every_type(kind):
    """The instruction asks for the form in which a rendered reference stands."""
    row = _row(FREE, "a" if kind == "option" else "yes" if kind == "boolean" else "12", answer_type=kind)
    assert r"\boxed{}" in FREE.render(row)[0].content
    assert 1.0 == FREE.verify(FREE.render_reference(row), row).reward


@pytest.mark.parametrize(
    ("metadata", "match"),
    [
        ({"answer_type": "poem"}, "'metadata.answer_type' must be one of integer, .*got 'poem'.*'p4'"),
        ({"tolerance": 2}, r"'metadata.tolerance' must be a number in \[0, 0.5\]; got '2'.*'p4'"),
        ({"tolerance": True}, "'metadata.tolerance' must be a number"),
    ],
)
def test_unusable_types_and_tolerances_are_refused(metadata, match):
    """A row states a known type and a small tolerance."""
    with pytest.raises(DataContractError, match=match):
        FREE.verify(r"\boxed{1}", _row(FREE, "1", **metadata))


def test_unreadable_reference_is_missing_and_found_beforehand():
    """A reference that is no expression judges nobody wrong, and is known before anybody is judged."""
    suite = CompetitionMath()
    row = _row(suite, r"\frac{1}{")
    assert (None, "unreadable reference") == (
        suite.verify(r"\boxed{2}", row).reward,
        suite.verify(r"\boxed{2}", row).reason,
    )
    assert not suite.reads_reference(row)
    assert not FREE.reads_reference(_row(FREE, r"\frac{1}{"))
    assert FREE.reads_reference(_row(FREE, r"\frac{1}{", answer_type="string"))


def test_worked_solution_serves_as_reference():
    """The last box of a worked solution is its answer."""
    suite = CompetitionMath()
    solution = r"We get \boxed{3}, so \boxed{\frac{1}{2}}."
    assert r"\frac{1}{2}" == reference_answer(solution)
    assert "right" == suite.verify(suite.render_reference(_row(suite, solution)), _row(suite, solution)).outcome
    assert "right" == suite.verify(r"\boxed{0.5}", _row(suite, solution)).outcome


def test_votes_count_answers_and_not_writings():
    """Writings of one answer have one canonical form."""
    suite = CompetitionMath()
    assert suite.canonical("1,000") == suite.canonical("1000.0")
    assert suite.canonical(r"\dfrac12") == suite.canonical(r"\frac{1}{2}")


def test_overlap_with_the_nearest_reference():
    """Worked example: of 4 words 3 agree in order with the nearer reference of 3 words, F = 2*3/(4+3)."""
    suite = OpenEnded()
    row = _row(suite, "cats sleep", references=["cats sleep", "dogs chase cats"])
    verdict = suite.verify("Summary: dogs chase grey cats", row)
    assert ("scored", "scored") == (verdict.reason, verdict.outcome)
    assert 6 / 7 == pytest.approx(verdict.reward)
    assert 1.0 == suite.verify(suite.render_reference(row), row).reward


@pytest.mark.parametrize(
    ("completion", "truncated", "reason"),
    [("", False, "no answer found"), ("<think>cats", False, "no answer found"), ("cats sleep", True, "cut off")],
)
def test_no_reply_is_missing(completion, truncated, reason):
    """Silence and a summary that was cut off have no overlap."""
    verdict = OpenEnded().verify(completion, _row(OpenEnded(), "cats sleep"), truncated=truncated)
    assert (None, reason) == (verdict.reward, verdict.reason)


@pytest.mark.parametrize("references", [[], "cats", [""], [3]])
def test_unusable_references_are_refused(references):
    """References are a list of non-blank texts."""
    with pytest.raises(DataContractError, match=r"'metadata.references' must be a list of non-blank texts; .*'p4'"):
        OpenEnded().verify("cats", _row(OpenEnded(), "cats", references=references))


def test_generated_problem_is_judged_by_its_generator():
    """An answer that is no number is right where the generator's scorer gives its full score."""
    (row,) = generate_problems([{"name": "spell_backward", "size": 1}], 0)
    suite = ReasoningGym()
    assert "<answer>" in suite.render(row)[0].content
    assert "right" == suite.verify(suite.render_reference(row), row).outcome
    assert "right" == suite.verify(row.reference, row).outcome
    assert "wrong" == suite.verify(f"<answer>{row.reference[:-1]}</answer>", row).outcome
    assert (None, "cut off") == (
        suite.verify("<answer>ab", row, truncated=True).reward,
        suite.verify("<answer>ab", row, truncated=True).reason,
    )


def test_problem_that_comes_out_otherwise_is_missing():
    """A generator that has changed since judges nobody."""
    (row,) = generate_problems([{"name": "spell_backward", "size": 1}], 0)
    other = PromptRow(prompt_id="p", prompt="other", suite=row.suite, reference=row.reference, metadata=row.metadata)
    verdict = ReasoningGym().verify(row.reference, other)
    assert (None, "the generator gives another problem now") == (verdict.reward, verdict.reason)


def test_unlabelled_problem_carries_no_answer():
    """The reference is neither in the row nor in what a scorer would need, and the form of the reply is still known."""
    generators = [{"name": "spell_backward", "size": 1, "labelled": False}]
    (row,) = generate_problems(generators, 0)
    assert (None, {"generator": "spell_backward", "answer_form": "text"}) == (row.reference, row.metadata)
    assert "<answer>" in ReasoningGym().render(row)[0].content


def test_generator_without_answers_cannot_be_labelled():
    """Problems that come without an answer are no labelled rows."""
    with pytest.raises(DataContractError, match="'labelled' must be false for 'rubiks_cube'; got true"):
        generate_problems([{"name": "rubiks_cube", "size": 1}], 0)
