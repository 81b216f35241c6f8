"""Laws of answers: a reference is right in every accepted phrasing, a perturbed one wrong, equality symmetric."""

import random
import string
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rangeline.records import PromptRow
from rangeline.suites.choice_extraction import LETTERS
from rangeline.suites.competition_math import CompetitionMath
from rangeline.suites.expression_text import tidy_expression
from rangeline.suites.free_form import FreeForm
from rangeline.suites.grade_school_math import GradeSchoolMath
from rangeline.suites.multiple_choice import MultipleChoice
from rangeline.suites.registry import get_suite
from rangeline.suites.symbolic_worker import compare_texts

COMMON = settings(max_examples=60, deadline=None, database=None)
PHRASINGS = (
    r"So it is \boxed{%s}.", r"\[ \boxed{%s} \]", "The answer is %s.", "**Answer:** %s", "The final answer is $%s$.",
    "First 17, then 18.\nAnswer: %s\n", "<think>Is it 5? \\boxed{6}</think>\nThe answer is $%s$.", "Antwort: %s",
    "<answer>%s</answer>", "It is\n\\[\n\\boxed{%s}\n\\]\nwhich was to be found.",
)  # fmt: skip
CHOICES = (
    "%s", "(%s)", "Answer: %s", "The answer is %s.", "The answer is **%s**", r"\boxed{%s}", r"\boxed{\text{%s}}",
    "I considered them all. The correct answer is (%s).", "Antwort: %s", "réponse: %s", "I pick %s.",
    "<answer>%s</answer>",
)  # fmt: skip
integers = st.integers(-(10**6), 10**6)
fractions = st.tuples(st.integers(-99, 99), st.integers(2, 99)).map(lambda pair: rf"\frac{{{pair[0]}}}{{{pair[1]}}}")
decimals = st.decimals(-999, 999, places=3).map(str)
surds = st.tuples(st.integers(2, 20), st.integers(2, 20)).map(lambda pair: rf"{pair[0]}\sqrt{{{pair[1]}}}")
polynomials = st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9)).map(
    lambda t: f"{t[0]}x^2+{t[1]}x-{t[2]}"
)
answers = st.one_of(integers.map(str), fractions, decimals, surds, polynomials)


def _row(suite, reference, **metadata):
    return PromptRow(prompt_id="p", prompt="q", suite=suite.name, reference=reference, metadata=metadata)


@COMMON
@given(answers, st.sampled_from(PHRASINGS))
def test_reference_is_right_in_every_phrasing(reference, phrasing):
    """Whatever sentence states the reference, it is found and right."""
    for suite, metadata in ((CompetitionMath(), {}), (FreeForm(), {"answer_type": "expression"})):
        assert "right" == suite.verify(phrasing % reference, _row(suite, reference, **metadata)).outcome


@COMMON
@given(answers, st.sampled_from(PHRASINGS), st.integers(1, 9))
def test_perturbed_reference_is_wrong_in_every_phrasing(reference, phrasing, offset):
    """Something added to the reference makes every phrasing of it wrong, never missing."""
    suite = CompetitionMath()
    assert "wrong" == suite.verify(phrasing % f"{reference}+{offset}", _row(suite, reference)).outcome


@COMMON
@given(
    integers, st.sampled_from(["#### %s", "####%s", "#### $%s.00", "#### %s apples", "The answer is %s.", "Answer: %s"])
)
def test_number_is_right_in_every_phrasing_and_its_neighbour_wrong(value, phrasing):
    """A number is right in every accepted spelling and phrasing, the next number is not."""
    suite = GradeSchoolMath()
    for spelling in (str(value), f"{value:,}"):
        assert "right" == suite.verify(phrasing % spelling, _row(suite, str(value))).outcome
        assert "wrong" == suite.verify(phrasing % spelling, _row(suite, str(value + 1))).outcome


@COMMON
@given(st.integers(2, 10), st.data(), st.sampled_from(CHOICES))
def test_letter_is_right_in_every_phrasing_and_no_other_letter_is(num_options, data, phrasing):
    """Each phrasing chooses the letter that it names."""
    right, other = data.draw(st.permutations(LETTERS[:num_options]))[:2]
    suite, options = MultipleChoice(), [f"option number {i}" for i in range(num_options)]
    assert "right" == suite.verify(phrasing % right, _row(suite, right, options=options)).outcome
    assert "wrong" == suite.verify(phrasing % other, _row(suite, right, options=options)).outcome


@COMMON
@given(answers, answers)
def test_equality_is_symmetric_and_reflexive(one, other):
    """Which of two answers is the reference does not count; every answer equals itself."""
    assert compare_texts(one, other)[0] == compare_texts(other, one)[0]
    assert (True, "") == compare_texts(one, one)


@COMMON
@given(st.lists(integers, min_size=2, max_size=6, unique=True), st.randoms())
def test_lists_have_no_order_and_all_members_count(values, shuffle):
    """A list equals itself in any order, and no list without one of its members."""
    reference = ", ".join(map(str, values))
    mixed = list(values)
    shuffle.shuffle(mixed)
    assert compare_texts(" and ".join(map(str, mixed)), reference)[0]
    assert False is compare_texts(" and ".join(map(str, mixed[1:])), reference)[0]


@COMMON
@given(answers)
def test_tidying_twice_is_tidying_once(text):
    """The one writing of an answer is a fixed point."""
    assert tidy_expression(text) == tidy_expression(tidy_expression(text))


WORDS = [
    *(
        "the",
        "answer",
        "is",
        "a",
        "I",
        "of",
        "to",
        "and",
        "in",
        "that",
        "it",
        "we",
        "so",
        "then",
        "number",
        "total",
        "x",
    ),
    *("y", "equals", "value", "because", "not", "know", "option", "choose", "B", "think", "4", "12", "7.5", "=", "+"),
    *("(", ")", ".", ",", "$", ":", "therefore", "sum"),
]
NOISE = {
    "printable": lambda draw, n: "".join(draw.choice(string.printable) for _ in range(n)),
    "letters": lambda draw, n: "".join(draw.choice(string.ascii_letters + " .,!?\n") for _ in range(n)),
    "unicode": lambda draw, n: "".join(chr(draw.randrange(*draw.choice(((32, 127), (160, 0xD7FF))))) for _ in range(n)),
    "words": lambda draw, n: " ".join(draw.choice(WORDS) for _ in range(n // 3)),
}  # fmt: skip
# Largest share of noise that is read as an answer, by kind of noise, as docs/suites.md states it.
CHANCE = {
    "competition_math": {"printable": 0.06, "letters": 0.02, "unicode": 0.01, "words": 0.15},
    "free_form": {"printable": 0.06, "letters": 0.02, "unicode": 0.01, "words": 0.15},
    "grade_school_math": {"printable": 0.01, "letters": 0.01, "unicode": 0.01, "words": 0.06},
    "multiple_choice": {"printable": 0.02, "letters": 0.03, "unicode": 0.01, "words": 0.05},
    "reasoning_gym": {"printable": 0.4, "letters": 0.01, "unicode": 0.4, "words": 0.5},
    "open_ended": {"printable": 1.0, "letters": 1.0, "unicode": 1.0, "words": 1.0},
}
ROWS = {
    "multiple_choice": {"options": ["red apples", "blue", "green stone", "x+1"]},
    "free_form": {"answer_type": "float"},
}


def _found_shares(num_texts, seed):
    """Return the share of noise that each suite reads as an answer, by kind, and the longest time of one reading."""
    draw, slowest = random.Random(seed), 0.0
    texts = {kind: [make(draw, draw.randint(0, 120)) for _ in range(num_texts // 4)] for kind, make in NOISE.items()}
    shares = {}
    for name in CHANCE:
        suite = get_suite(name)
        row = _row(suite, "42", **ROWS.get(name, {}))
        for kind, sample in texts.items():
            started = time.perf_counter()
            found = [suite.extract(text, row).status == "found" for text in sample]
            slowest = max(slowest, (time.perf_counter() - started) / len(sample))
            shares[name, kind] = sum(found) / len(found)
    return shares, slowest


def _check_noise(num_texts, seed):
    shares, slowest = _found_shares(num_texts, seed)
    above = {key: share for key, share in shares.items() if share > CHANCE[key[0]][key[1]]}
    assert {} == above
    assert slowest < 0.01


def test_noise_is_hardly_ever_an_answer():
    """No extractor raises, hangs, or finds answers in noise more often than is stated."""
    _check_noise(2000, seed=1)


@pytest.mark.slow
def test_noise_is_hardly_ever_an_answer_in_20_000_texts():
    """The same law on 20,000 texts, each through every extractor."""
    _check_noise(20_000, seed=2)
