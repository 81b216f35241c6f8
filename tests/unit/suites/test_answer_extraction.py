"""Final answers of completions: numbers and letters."""

import pytest

from rangeline.suites.answer_extraction import extract_bare_number, extract_hashed_number
from rangeline.suites.choice_extraction import extract_choice
from rangeline.suites.final_text import closed_part

TAIL = "Then she counts the apples in the basket once more. " * 20


@pytest.mark.parametrize(
    ("completion", "expected"),
    [
        ("6 * 7 = 42\n#### 42.", "42"),
        ("####42", "42"),
        ("#### 1,000", "1,000"),
        ("#### \u22123", "-3"),
        ("She pays $29.00.\n#### $29.00.", "29.00"),
        ("First: 1+1\n#### 2\nNow the question: 9+9 = 18\n#### 18", "18"),
        ("one line #### 4 and then #### 18", "18"),
        (f"#### 42\n{TAIL}", "42"),
        (f"#### 42. {TAIL}", "42"),
        ("####\n\n42", "42"),
        ("#### 3 + 4 = 7", "7"),
        ("#### 42 (which is 6 * 7)", "42"),
        ("#### **42** apples", "42"),
        ("#### Step 2: add 3 and 4\nThe answer is 7.", "7"),
        ("So \\boxed{12}, no, \\boxed{840}.", "840"),
        ("The answer is: $\\boxed{\\text{13}}$", "13"),
        ("Final answer: 18 eggs", "18"),
    ],
)
def test_marked_number_is_found(completion, expected):
    """The last marked number counts, whatever stands before or after it."""
    assert expected == extract_hashed_number(completion).value


@pytest.mark.parametrize(
    ("completion", "status"),
    [
        ("", "absent"),
        ("I do not know.", "absent"),
        ("She has 18 eggs.", "absent"),
        ("####", "absent"),
        ("#### unknown", "absent"),
        ("\\boxed{42", "absent"),
        ("#### 3 or 4", "ambiguous"),
        ("#### 1.000,50", "ambiguous"),
    ],
)
def test_unmarked_or_double_number_is_not_found(completion, status):
    """Without a marker there is no answer; two numbers after it are ambiguous."""
    assert status == extract_hashed_number(completion).status


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("19", "19"),
        (" 19 \n", "19"),
        ("19.", "19"),
        ("$1,900$", "1,900"),
        ("-4", "-4"),
        ("19\n20\n21", "19"),
        (f"19\n{TAIL} 20", "19"),
        ("Let me see.\n19\nYes.", "19"),
        ("12 + 7 = 19", "19"),
        ("12 + 7 = 19. There are 3 ways.", "19"),
        ("12 + 7 = 14 + 5 = 19", "19"),
        ("12 - 16 = - 4", "-4"),
        ("Answer: 19", "19"),
        ("The answer is 12 + 7 = 19.", "19"),
        ("The sum of 12 and 7 is 19.", "19"),
        ("19 apples", "19"),
        ("19, yes 19.0", "19"),
    ],
)
def test_bare_number_is_found(reply, expected):
    """A bare line, a marked number, a stated result or the only number is the reply."""
    assert expected == extract_bare_number(reply).value


@pytest.mark.parametrize(
    ("reply", "status"),
    [
        ("", "absent"),
        ("nineteen", "absent"),
        ("3x", "absent"),
        ("10/12/2020", "absent"),
        ("\\boxed{19", "absent"),
        ("12 or 19", "ambiguous"),
        ("Calculate 12 + 7.", "ambiguous"),
        ("12 + 7 = 19 or 20", "ambiguous"),
    ],
)
def test_unclear_number_is_not_guessed(reply, status):
    """No number is absent; differing numbers without a marker are ambiguous."""
    assert status == extract_bare_number(reply).status


def test_lone_number_of_a_cut_off_reply_is_no_answer():
    """A cut-off reply may have begun a calculation, so only marked numbers and bare lines count."""
    assert "absent" == extract_bare_number("First take 12 and ", truncated=True).status
    assert "19" == extract_bare_number("19\nbecause ", truncated=True).value


@pytest.mark.parametrize(
    ("completion", "num_options", "expected"),
    [
        ("The answer is **B**.", 10, "B"),
        ("\\boxed{B}", 10, "B"),
        ("\\boxed{\\text{(C)}}", 10, "C"),
        ("Answer: B", 10, "B"),
        ("Answer:\nB", 10, "B"),
        ("ANSWER: b", 10, "B"),
        ("Antwort: C", 4, "C"),
        ("I think the answer is A? No. The answer is (C).", 10, "C"),
        ("Therefore, I pick D. I am sure.", 10, "D"),
        ("The answer is C because I computed it twice.", 10, "C"),
        ("The answer is A because I say so.", 10, "A"),
        ("The answer is a.", 10, "A"),
        ("The answer is I.", 10, "I"),
        ("Option B is correct because option A is wrong.", 4, "B"),
        ("The best option is D", 4, "D"),
        ("B", 2, "B"),
        ("b)", 2, "B"),
        ("(B) Paris", 4, "B"),
        ("B. Paris\nA. London is wrong", 4, None),
        ("B\nA. London is wrong", 4, "B"),
        ("So it must be (C), clearly.", 4, "C"),
        (f"Answer: D\n{TAIL}", 4, "D"),
    ],
)
def test_letters_of_choices(completion, num_options, expected):
    """The last marked letter counts, else a bare one, else the only lettered one."""
    assert expected == extract_choice(completion, num_options).value


@pytest.mark.parametrize(
    ("completion", "num_options", "status"),
    [
        ("", 4, "absent"),
        ("The answer is Absolutely unclear", 10, "absent"),
        ("The answer is a large number.", 10, "absent"),
        ("I cannot tell.", 10, "absent"),
        ("I'm sure.", 10, "absent"),
        ("The answer is I think unclear", 10, "absent"),
        ("answer: I'm sure", 10, "absent"),
        ("Error: rate limited", 4, "absent"),
        ("The answer is F", 4, "absent"),
        ("Perhaps (B). The answer is F", 4, "absent"),
        ("The answer is not B", 4, "absent"),
        ("A cat", 4, "absent"),
        ("The answer is B or C", 4, "ambiguous"),
        ("A) one\nB) two", 4, "ambiguous"),
        ("either (A) or (B)", 4, "ambiguous"),
    ],
)
def test_unclear_choice_is_not_guessed(completion, num_options, status):
    """Articles, pronouns and letters beyond the options are no answers; two letters are ambiguous."""
    assert status == extract_choice(completion, num_options).status


@pytest.mark.parametrize(("completion", "expected"), [("a b", "a "), ("abc", ""), ("a\n", "a\n"), ("", "")])
def test_last_word_of_a_cut_off_completion_is_dropped(completion, expected):
    """A word that the limit may have halved is not read."""
    assert expected == closed_part(completion)
