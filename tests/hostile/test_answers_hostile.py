"""Completions that broke other readers: endless runs, odd digits, half marks; each is read in time, none is guessed."""

import time

import pytest

from rangeline.suites.answer_extraction import extract_bare_number, extract_hashed_number
from rangeline.suites.choice_extraction import extract_choice

LONG = 50_000
READERS = (extract_hashed_number, extract_bare_number, lambda text: extract_choice(text, 10))


@pytest.mark.parametrize(
    "unit",
    ["answer", " ", "\n", "(", "####", "9", "1,", "1/", "= 1 ", "answer is ", "answer: 1 ", "\\boxed{", "A) x\n", "e5"],
)
def test_reading_time_grows_with_length_alone(unit):
    """Repetitions, which small models fall into, never make a reader backtrack for minutes."""
    started = time.perf_counter()
    for reader in READERS:
        reader("answer" + unit * (LONG // len(unit)))
    assert time.perf_counter() - started < 5


@pytest.mark.parametrize(
    "reply",
    ["nan", "inf", "-", "+", ".", "1e999999999", "9" * 5000, "\u0664\u0662", "4\u00b2", "\x00", "\ud800", "#" * 9],
)
def test_what_is_no_number_is_absent(reply):
    """Words for no number, numbers without end, other digits and broken characters are no answer."""
    assert "absent" == extract_bare_number(reply).status
    assert "absent" == extract_hashed_number(f"#### {reply}").status


@pytest.mark.parametrize("reply", ["2^10", "4\\sqrt{2}", "3\\pi", "10k", "x2"])
def test_head_of_an_expression_is_no_number(reply):
    """A factor or base is not taken for the value of its expression."""
    assert "absent" == extract_bare_number(reply).status


def test_listing_candidates_earns_nothing():
    """A policy cannot collect reward by naming every answer."""
    assert "ambiguous" == extract_hashed_number("#### 1, 2, 3, 4, 5").status
    assert "ambiguous" == extract_bare_number("1 2 3 4 5").status
    assert "ambiguous" == extract_choice("A. B. C. D.\n(A) (B) (C)\nB. yes", 4).status


def test_echoed_instruction_is_no_choice():
    """The form that the instruction shows is no answer where its letter is no option."""
    assert "absent" == extract_choice("End with 'Answer: X', where X is the letter.", 4).status
