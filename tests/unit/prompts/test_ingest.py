"""Generated problems and the check of references."""

import pytest

from rangeline.errors import ConfigError, DataContractError, ReferenceCheckError
from rangeline.prompts.ingest import check_references, generate_problems
from rangeline.records import PromptRow
from rangeline.suites.registry import get_suite

SUITES = {"reasoning_gym": get_suite("reasoning_gym")}
SUMS = {"name": "chain_sum", "size": 6, "options": {"max_terms": 3}, "domain": "sums"}


def _row(prompt_id, reference):
    return PromptRow(prompt_id=prompt_id, prompt="12 + 7?", suite="reasoning_gym", reference=reference)


def test_problems_are_distinct_and_score_right():
    """Each generator gives its size of distinct problems, whose references verify right."""
    rows = generate_problems([SUMS, SUMS | {"seed": 1, "domain": "more"}], 7)
    assert ["sums"] * 6 + ["more"] * 6 == [row.domain for row in rows]
    assert 12 == len({row.prompt for row in rows}) == len({row.prompt_id for row in rows})
    assert all(row.prompt_id.startswith(f"{row.domain}-") for row in rows)
    assert 12 == check_references(rows, SUITES).num_passed


def test_problems_follow_the_seed_and_a_larger_size_adds():
    """The same seed gives the same rows, another seed others, and a larger size keeps the first rows."""
    rows = generate_problems([SUMS], 7)
    assert rows == generate_problems([SUMS], 7)
    assert rows != generate_problems([SUMS], 8)
    assert rows == generate_problems([SUMS | {"size": 9}], 7)[:6]


def test_a_question_of_two_generators_belongs_to_the_first():
    """Equal generators share their draws, so the second goes on where the first stopped."""
    both = generate_problems([SUMS, SUMS], 7)
    assert generate_problems([SUMS | {"size": 12}], 7) == both


def test_unlabelled_and_reserved_problems():
    """Unlabelled problems have no reference; reserved ones carry their share."""
    rows = generate_problems([SUMS | {"labelled": False}, SUMS | {"seed": 1, "share": "evaluation"}], 7)
    assert [None] * 6 == [row.reference for row in rows[:6]]
    assert {"evaluation"} == {row.share for row in rows[6:]}


def test_problems_may_be_asked_to_be_worked_out():
    """Questions, names and answers stay; a number is asked for with its steps, and the reference has them.

    A problem whose answer is no number, and the reference of an unlabelled one, stay as they are; where the generator
    does not tell the expression, the answer is the reference.
    """
    sums = {"name": "basic_arithmetic", "size": 3, "options": {"min_terms": 2, "max_terms": 2, "operators": ["-"]}}
    others = [{"name": "gcd", "size": 1}, {"name": "spell_backward", "size": 1}, sums | {"labelled": False, "seed": 1}]
    bare, worked = (generate_problems([sums, *others], 7, reply=reply) for reply in ("answer", "reasoning"))
    assert [(row.prompt_id, row.prompt) for row in bare] == [(row.prompt_id, row.prompt) for row in worked]
    suites = ["grade_school_math"] * 4 + ["reasoning_gym"] + ["grade_school_math"] * 3
    assert suites == [row.suite for row in worked]
    for before, after in zip(bare[:3], worked[:3], strict=True):
        steps, _, answer = after.reference.partition("\n#### ")
        assert before.reference == answer
        assert steps.endswith(f" = {answer}")
        assert steps.partition(" = ")[0] in after.prompt
    assert [row.reference for row in bare[3:]] == [row.reference for row in worked[3:]]
    assert 5 == check_references([row for row in worked if row.reference], _all_suites()).num_passed


def _all_suites():
    return {name: get_suite(name) for name in ("reasoning_gym", "grade_school_math")}


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"nmae": "x"}, r"'nmae' must be one of name, size, .*\(generator 2\). Did you mean 'name'\?"),
        ({"zzzz": 1}, r"'zzzz' must be one of .*\(generator 2\). Remove it."),
        (
            {"name": "chain_sums"},
            r"'name' must be a reasoning-gym dataset; got 'chain_sums'. Did you mean 'chain_sum'\?",
        ),
        ({"name": "##"}, r"got '##'. There are \d+, such as"),
        ({"name": None}, "'name' must be the name of a reasoning-gym dataset; got None"),
        ({"size": 0}, "'size' must be an integer >= 1; got 0"),
        ({"size": True}, "'size' must be an integer >= 1; got True"),
        ({"share": "test"}, "'share' must be one of train, audit, evaluation; got 'test'"),
        ({"share": "audit", "labelled": False}, "'labelled' must be true where 'share' is audit; got False"),
        ({"options": {"nope": 1}}, r"'options' must suit 'chain_sum'; got \{'nope': 1\} .*Correct the options."),
        ({"options": {"min_terms": -3}}, r"'options' must suit 'chain_sum'; got \{'min_terms': -3\}"),
    ],
)
def test_unusable_generators_are_refused(changes, match):
    """Unknown fields, names, options and values out of range are named."""
    with pytest.raises(ConfigError, match=match):
        generate_problems([SUMS, SUMS | changes], 7)


def test_a_generator_that_repeats_itself_is_refused():
    """A generator with fewer distinct problems than asked for says how many it has."""
    options = {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1, "allow_negation": False}
    with pytest.raises(DataContractError, match=r"'size' must be within what 'chain_sum' can give; got 900, found \d+"):
        generate_problems([{"name": "chain_sum", "size": 900, "options": options}], 7)


def test_references_above_the_floor_are_reported():
    """Few wrong references are returned as rejected; unlabelled rows are not counted."""
    rows = [_row("a", "19"), _row("b", "nineteen"), _row("c", None), _row("d", "19")]
    report = check_references(rows, SUITES, floor=0.6)
    assert (3, 2, 2 / 3) == (report.num_checked, report.num_passed, report.passed_share)
    assert [("b", "nineteen")] == [(item.prompt_id, item.reference) for item in report.rejected]


def test_references_below_the_floor_are_listed():
    """Too many wrong references stop the run, with the first ten of them."""
    rows = [_row(f"p{i:02}", "blue") for i in range(12)] + [_row("good", "19")]
    with pytest.raises(
        ReferenceCheckError, match=r"at least 99.5% of rows; got 7.7%, 12 of 13 wrong \('p00'.*'p09'"
    ) as e:
        check_references(rows, SUITES)
    assert "p10" not in str(e.value)


def test_nothing_labelled_has_no_share():
    """Without labelled rows the share is undefined, not 0 or 1."""
    assert None is check_references([_row("a", None)], SUITES).passed_share


def test_unknown_suite_is_refused():
    """A labelled row of a suite that was not given is an error, not a rejection."""
    with pytest.raises(ConfigError, match=r"'suite' must be one of reasoning_gym; got 'x' \(prompt 'a'\)"):
        check_references([PromptRow(prompt_id="a", prompt="?", suite="x", reference="1")], SUITES)
