"""Whole completions that fooled other readers, by kind: right, wrong or missing as a person says."""

import pytest

from rangeline.records import PromptRow
from rangeline.suites.choice_extraction import extract_choice
from rangeline.suites.competition_math import CompetitionMath
from rangeline.suites.grade_school_math import GradeSchoolMath

MATHEMATICS = {
    "last box wins": [
        ("42", r"At first \boxed{12}, the rows. So \boxed{42}.", "right"),
        ("12", r"At first \boxed{12}. So \boxed{42}.", "wrong"),
    ],
    "box in display": [("42", "Then\n\\[\n\\boxed{42}\n\\]", "right"), ("1/2", r"$$\boxed{\dfrac{1}{2}}$$", "right")],
    "boxes of other makes": [("5", r"\fbox{5}", "right"), ("5", r"\boxed 5", "right"), ("5", r"\boxed{~5}", "right")],
    "box that never closes": [
        ("42", r"It is \boxed{42", "missing"),
        ("1/2", r"\boxed{1} then \boxed{\frac{1}{2}", "missing"),
    ],
    "boxes side by side": [
        ("1,2", r"$\boxed{1}$ and $\boxed{2}$", "right"),
        ("2", r"$\boxed{1}$ and $\boxed{2}$", "wrong"),
    ],
    "box inside braces": [
        ("{1}/{2}", r"\boxed{\frac{1}{2}}", "right"),
        (r"\sqrt{2}", r"\boxed{\sqrt{\frac{4}{2}}}", "right"),
    ],
    "thinking is no answer": [
        ("3", r"<think>\boxed{3}</think>I am not sure.", "missing"),
        ("3", r"Maybe \boxed{4}</think>\boxed{3}", "right"),
        ("3", r"<think>\boxed{3}", "missing"),
    ],
    "text after the turn": [("3", r"\boxed{3}<|im_end|>Next: \boxed{4}", "right")],
    "plain statements": [
        ("42", "The answer is 42.", "right"),
        ("42", "**Answer:** 42", "right"),
        ("5", "So x = 5.", "right"),
        ("12", "The answer to the problem is 12, because 3*4=12.", "right"),
        ("3/4", "Hence the answer is\n$$\\frac{3}{4}$$", "right"),
    ],
    "other languages": [
        ("42", "Die Antwort lautet 42.", "right"),
        ("42", "La respuesta es 42.", "right"),
        ("42", "答案是42。", "right"),
        ("42", "Ответ: 42", "right"),
    ],
    "no box at all": [
        ("4", r"So the value is $4\sqrt(2)$.", "wrong"),
        ("3x-y+13=0", "The line is 3x+4y+14=0", "wrong"),
    ],
    "matrix lines with spaces": [
        (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\boxed{\begin{bmatrix} 1 & 2 \\ 3 & 4 \end{bmatrix}}", "right"),
        (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\boxed{\begin{bmatrix} 1 & 2 \\ 3 & 5 \end{bmatrix}}", "wrong"),
    ],
    "conditions joined": [
        ("[2,5)", r"\boxed{x \ge 2 \text{ and } x < 5}", "right"),
        (r"\mathbb{R}", r"\boxed{x \ge 2 \text{ and } x < 5}", "wrong"),
        (r"(-\infty,1)\cup(2,\infty)", r"\boxed{x<1 \text{ or } x>2}", "right"),
        (r"(-\infty,\infty)", r"\boxed{x<5 \text{ or } x>2}", "right"),
    ],
    "macros as arguments": [
        (r"\frac34", r"\boxed{\frac{\frac12}\frac23}", "right"),
        (r"\frac{1}{\sqrt2}", r"\boxed{\frac1\sqrt2}", "right"),
    ],
    "functions in plain words": [
        (r"\arctan 2", r"\boxed{atan(2)}", "right"),
        (r"\sqrt[3]{2}", r"\boxed{cbrt(2)}", "right"),
        (r"\log_2 8", r"\boxed{3}", "right"),
        (r"\infty", r"\boxed{infinity}", "right"),
        (r"\mathbb{R}", r"\boxed{\mathbb R}", "right"),
    ],
    "announcement inside a box": [("13", r"\boxed{\text{The answer is } 13}", "right")],
    "words after the number": [("13", "答えは 13 です。", "right")],
    "nothing said": [
        ("13", "It could be 13.", "missing"),
        ("13", "Perhaps it is 13.", "missing"),
        ("42", "", "missing"),
        ("42", "I do not know.", "missing"),
        ("42", "The answer is not clear.", "missing"),
        ("4", "We cannot tell whether it is 4.", "missing"),
    ],
}
NUMBERS = {
    "marks after hashes": [
        ("42", "#### 42.", "right"),
        ("42", "####42", "right"),
        ("42", "#### 42.0", "right"),
        ("42", "#### 042", "right"),
        ("1000", "#### 1,000", "right"),
        ("29", "#### $29.00.", "right"),
        ("-3", "#### \u22123", "right"),
    ],
    "long tail": [("42", "#### 42\n" + "They remain in the basket for the whole of the day. " * 30, "right")],
    "recited example first": [
        ("18", "Example: 2+2\n#### 4\nNow: 9+9 = 18\n#### 18", "right"),
        ("4", "Example: 2+2\n#### 4\nNow: 9+9 = 18\n#### 18", "wrong"),
    ],
    "units in a box": [("42", r"\boxed{42\text{ apples}}", "right"), ("42", r"\boxed{43\text{ km}}", "wrong")],
    "spaces of one number": [
        ("1000", "#### 1 000", "right"),
        ("1000", "#### 1\u202f000", "right"),
        ("2.5", "#### 2 1/2", "right"),
        ("-2.5", "#### -2 1/2", "right"),
        ("-5", "#### - 5", "right"),
        ("42", "#### 4 2", "missing"),
    ],
    "fraction after hashes": [("42", r"#### \frac{84}{2}", "right"), ("2.5", r"#### 2\frac{1}{2}", "right")],
    "heading before the answer": [("42", "#### Final answer:\nThe total is 42.", "right")],
    "scripts without spaces": [
        ("42", "答えは42です", "right"),
        ("42", "คำตอบคือ 42", "right"),
        ("42", "答案是42", "right"),
    ],
    "near is not equal": [("8.5", "#### 9", "wrong"), ("8.5", "#### 8", "wrong")],
    "thinking is no answer": [("42", "<think>#### 42</think>Well.", "missing")],
    "nothing said": [("42", "", "missing"), ("42", "I do not know.", "missing"), ("42", "####", "missing")],
}
CHOICES = {
    "bold, boxed, plain": [
        ("The answer is **B**.", 10, "B"),
        (r"\boxed{B}", 10, "B"),
        ("Answer: B", 10, "B"),
        ("ANSWER: b", 10, "B"),
        ("<answer>B</answer>", 4, "B"),
        (r"$\boxed{\textbf{(B)}}$", 4, "B"),
    ],
    "article and pronoun": [
        ("the answer is Absolutely unclear", 10, None),
        ("I cannot tell.", 10, None),
        ("The answer is a matter of taste.", 4, None),
        ("I think so.", 10, None),
        ("A cat sat.", 4, None),
        ("The answer is I", 10, "I"),
    ],
    "correction": [
        ("I think the answer is A? No. The answer is (C).", 10, "C"),
        ("Answer: A. Wait. Answer: D", 4, "D"),
    ],
    "a pick in a sentence": [
        ("Therefore, I pick D. I am sure.", 10, "D"),
        ("The answer is C because I computed it twice.", 10, "C"),
        ("I would go with C.", 4, "C"),
        ("So (B) is correct.", 4, "B"),
        ("B is the correct answer.", 4, "B"),
        ("So, B is the answer", 4, "B"),
        ("A is incorrect, B is correct", 4, "B"),
        ("The answer is not A but B", 4, "B"),
        ("B, because it is larger", 4, "B"),
        ("B - the larger one", 4, "B"),
    ],
    "quotes and dashes": [
        ("My answer is: \u201cB\u201d", 4, "B"),
        ("ANSWER - B", 4, "B"),
        ("Answer \u2013 B", 4, "B"),
        ("I - as a model - cannot say", 10, None),
    ],
    "letters of no option": [("The answer is F", 4, None), ("Error: rate limited", 4, None), ("Answer: J", 9, None)],
    "other languages": [
        ("Antwort: C", 4, "C"),
        ("答案\uff1aB", 4, "B"),
        ("La respuesta es B.", 4, "B"),
        ("réponse : (D)", 4, "D"),
    ],
    "two at once": [("Answer: B or C", 4, None), ("Answer: B, C", 4, None), ("(A) or (B)", 4, None)],
    "two at once, without a mark": [(f"A{between}B", 4, None) for between in (" or ", " and ", ", ", "/")],
    "thinking is no answer": [("<think>Answer: A</think>Answer: B", 4, "B"), ("<think>Answer: A", 4, None)],
}
OPTIONS = ["London", "Paris", "New York", "York", "neither of them"]


def _cases(kinds):
    return [
        pytest.param(*case, id=f"{kind}: {case[0]!s:.40} {case[1]!s:.40}")
        for kind, cases in kinds.items()
        for case in cases
    ]


def _verdict(suite, reference, completion):
    row = PromptRow(prompt_id="p", prompt="q", suite=suite.name, reference=reference)
    return suite.verify(completion, row).outcome


@pytest.mark.parametrize(("reference", "completion", "outcome"), _cases(MATHEMATICS))
def test_mathematics_is_judged_as_a_person_would(reference, completion, outcome):
    """The final answer counts, whatever was said before it; nothing is guessed."""
    assert outcome == _verdict(CompetitionMath(), reference, completion)


@pytest.mark.parametrize(("reference", "completion", "outcome"), _cases(NUMBERS))
def test_numbers_are_judged_as_a_person_would(reference, completion, outcome):
    """The last marked number counts in every spelling, and exactly."""
    assert outcome == _verdict(GradeSchoolMath(), reference, completion)


@pytest.mark.parametrize(("completion", "num_options", "letter"), _cases(CHOICES))
def test_letters_are_read_as_a_person_would(completion, num_options, letter):
    """A letter counts where it is chosen and exists."""
    assert letter == extract_choice(completion, num_options).value


@pytest.mark.parametrize(
    ("completion", "letter"),
    [
        ("The answer is Paris.", "B"),
        ("paris", "B"),
        (r"\boxed{Paris}", "B"),
        ("The answer is New York, of course.", "C"),
        ("The answer is York", "D"),
        ("The answer is not Paris.", None),
        ("The answer is Berlin.", None),
        ("Answer: neither of them", "E"),
        ("It is London. Answer: B", "B"),
    ],
)
def test_text_of_an_option_stands_for_its_letter(completion, letter):
    """An option's text counts where a letter was asked for; a letter beats it, a longer one beats a part."""
    assert letter == extract_choice(completion, 5, OPTIONS).value
