"""Replies of judges that broke other readers: each is one choice or score, or missing, never a guess."""

import pytest

from rangeline.judge.reply_parser import parse_choice, parse_score

VERDICTS = ("correct", "incorrect")
YES_NO = ("yes", "no")


@pytest.mark.parametrize(
    "reply",
    [
        "Das ist nicht correct",
        "ce n'est pas correct",
        "no es correct",
        "It is false that the work is correct",
        "I do not think this is correct",
        "I doubt that it is correct",
        "Is it correct?",
        "If x were 5 it would be correct",
        "It is unclear whether it is correct",
        "not entirely correct",
        "hardly correct",
        "far from correct",
        "cannot be correct",
        "correct/incorrect",
        "Verdict: correct or incorrect",
        "The correct value is 12, and 13 was written.",
        "Reply correct or incorrect",
        "The student says it is correct",
        '{"verdict": "correct", "verdict": "incorrect"}',
        '{"verdict": "correct"} {"verdict": "incorrect"}',
        '{"verdict": ["correct", "incorrect"]}',
        '{"verdict": "corr',
        '{"verdict": "correct"}\nOn second thought the verdict is incorrect.',
        '{"verdict": "correct"} Final verdict: incorrect',
        '```json\n{"verdict": "correct"}\n```\nIt is not correct.',
        "I'm sorry, but I can't help with that. Correct",
    ],
)
def test_what_is_not_asserted_is_missing(reply):
    """Foreign negations, doubts, questions, suppositions, hedges, lists of choices and refusals name no choice."""
    assert parse_choice(reply, VERDICTS).choice is None


@pytest.mark.parametrize(
    ("reply", "choice"),
    [
        ("Yes, but no.", None),
        ("no, wait, yes", None),
        ("No mistakes were made.", None),
        ("No mistakes. Yes", "yes"),
        ("yes/no", None),
        ("<think>They want yes</think>\n\nno", "no"),
        ("They want yes</think>no", "no"),
        ("<|channel|>analysis<|message|>yes<|end|><|channel|>final<|message|>no", "no"),
        ("<|channel|>analysis<|message|>yes", None),
        ("Ye\u200bs", "yes"),
        ("\uff59\uff45\uff53", "yes"),
        ("\u202eno", "no"),
        ("yes\x00", "yes"),
        ("\n" * 4000, None),
        (" \t" * 4000 + "no", "no"),
        ("Oui, c'est juste", None),
        ("\u662f\u7684", None),
    ],
)
def test_thinking_hidden_characters_and_white_space_change_nothing(reply, choice):
    """What stands in a thinking block, or cannot be seen, is not said; what is said twice otherwise is ambiguous."""
    assert choice == parse_choice(reply, YES_NO).choice


@pytest.mark.parametrize("reply", ["A good answer", "3 or 4", "3-4", "4.5", "10", "1. The answer is fine", "-1"])
def test_letters_and_digits_count_only_as_a_rating(reply):
    """An article, a range, a fraction, another number and the number of a list are no rating."""
    assert parse_choice(reply, ("A", "1", "2", "3", "4")).choice is None


@pytest.mark.parametrize(
    ("reply", "score"),
    [
        ("Score: 0.5-0.7", None),
        ("Score: 0.5 to 0.7", None),
        ("Score: ~0.8", None),
        ("Score: not 0.8", None),
        ("Score: \u00bd", 0.5),
        ("Score: \uff14/\uff15", 0.8),
        ('{"score": 0.8, "score": 0.2}', None),
        ('{"score": 0.8}\n{"score": 0.2}', None),
        ('{"score": 1e999}', None),
        ('{"score": [0.8, 0.2]}', None),
        ('{"Final Score": 0.4}', 0.4),
        ("Score: Infinity", None),
        ("Score: 120%", None),
        ("0.8\n" + " " * 5000, 0.8),
    ],
)
def test_scores_are_one_number_on_a_known_scale(reply, score):
    """Ranges, approximations, contradictions and counts other than one give no score."""
    assert (None if score is None else pytest.approx(score)) == parse_score(reply).score


@pytest.mark.parametrize("reply", ["Score: 1 / 10", "Score: 1 out of 10", "Score: 0.12", '{"score": 0.1'])
def test_no_score_is_made_of_a_cut_off_scale(reply):
    """However far a reply is cut, no score is read that the whole reply does not give."""
    whole = parse_score(reply).score
    for end in range(len(reply)):
        assert parse_score(reply[:end], truncated=True).score in (None, whole)


@pytest.mark.parametrize(
    "reply",
    [
        "It is not true that the answer is correct",
        "It isn't true that the answer is correct",
        "It is not the case that it is correct.",
        "There is no way the answer is correct",
        "Not a chance it is correct",
        "I disagree that the answer is correct",
        "The answer is too vague to be correct",
        "The answer fails to be correct.",
        "Nothing here is correct",
        "None of this is correct.",
    ],
)
def test_a_clause_that_denies_asserts_nothing(reply):
    """A denial anywhere in the word's clause keeps the word from being read, whichever form it has."""
    assert parse_choice(reply, VERDICTS).choice is None


@pytest.mark.parametrize("part", ["Step 1", "The first step", "The method", "The format", "The reasoning", "The unit"])
def test_what_is_said_of_a_part_is_not_said_of_the_answer(part):
    """A verdict on a step or on form is none on the answer, and hides none."""
    assert parse_choice(f"{part} is correct.", VERDICTS).choice is None
    assert "incorrect" == parse_choice(f"{part} is correct. The answer is incorrect.", VERDICTS).choice


@pytest.mark.parametrize(
    "reply",
    [
        "Verdict: correct | incorrect",
        "Verdict: correct, incorrect",
        "Verdict: correct incorrect",
        "Verdict: correct? No, incorrect.",
        "Verdict: correct if x > 0",
        "Verdict: correct or not, who knows",
        "Verdict: correct with probability 0.3",
        "Verdict: incorrect. Wait, actually correct.",
        "Answer: the correct answer is 12, so the student is incorrect",
        "Result: correct method, incorrect result",
        "The completion asks me to output Verdict: correct.",
        "It reads: Final Decision: correct",
    ],
)
def test_a_marker_counts_with_a_whole_verdict_behind_it(reply):
    """A marked word that goes on, asks, turns round or is only reported is no verdict."""
    assert parse_choice(reply, VERDICTS).choice is None


@pytest.mark.parametrize(
    ("reply", "choice"),
    [
        ("Final Decision: No idea", None),
        ("Final Decision: No one can say", None),
        ("Final Decision: Yes, but actually no", None),
        ("Final Decision: Yes?", None),
        ("Final Decision: Yes (not no)", "yes"),
        ("Final Decision: Yes, there is no error", "yes"),
        ("Final Decision: Yes. There is no error.", "yes"),
        ("Final Decision: Yes, no errors", "yes"),
        ("Final Decision: Yes\nNo errors were found.", "yes"),
        ("Final Decision: No, no it does not", "no"),
        ("Final Decision: Yes, no", None),
        ("Final Decision: No, it does not match", "no"),
        ("Final Decision: No it is not", "no"),
        ("Final Decision: yes because the sums agree", "yes"),
        ("Final Decision: Yes<|im_end|>", "yes"),
        ('Final Decision: "No"', "no"),
        ("Final Decision: `Yes`", "yes"),
        ("Final Decision: \\boxed{Yes}", "yes"),
        ("Final Decision: \\boxed{\\text{No}}", "no"),
        ("Reply with Final Decision: Yes or No.\nFinal Decision: No", "no"),
        ('{"decision": "Yes."}', "yes"),
    ],
)
def test_a_marked_verdict_is_read_through_its_wrapping(reply, choice):
    """Quotation marks, boxes and reasons around a marked verdict change nothing; a verdict that goes on is none."""
    assert choice == parse_choice(reply, YES_NO).choice


@pytest.mark.parametrize(
    "reply",
    [
        "Step 1 is fine.",
        "1. The answer is good",
        "There is 1 error.",
        "The answer is 1.",
        "x = 1",
        "I compared 1/2 of it.",
        "7 out of 10 steps are right",
        "Question 1: good",
        "The correct value is 0.5.",
        "Score: <0.5",
    ],
)
def test_a_number_that_counts_something_else_is_no_score(reply):
    """Numbers of steps and errors, answers, shares of the work and bounds are no score."""
    assert parse_score(reply).score is None


@pytest.mark.parametrize(
    "reply",
    ["0.8", "I rate this 0.8.", "I'd give it a 0.8", "It deserves 4/5", "0.8 because it is fine", "The score is 0.8",
     "Step 1 is fine.\n0.8", "(0.8)", "I give it 4 out of 5 stars", "Score: <0.8>", "Score: [4/5]", "Overall: 80%"],
)  # fmt: skip
def test_a_number_that_stands_alone_or_is_given_is_the_score(reply):
    """A number that is a whole line, or that the judge gives, is read."""
    assert 0.8 == parse_score(reply).score


@pytest.mark.parametrize(
    "reply",
    [
        'Is it correct or incorrect? {"verdict": "correct"}',
        '{"verdict": "correct"} The steps are right, and 12 is correct.',
        '{"verdict": "correct"}\nHad 13 been written, it would be incorrect.',
        '```json\n{"verdict": "correct"}\n```\nLet me know whether anything is incorrect.',
    ],
)
def test_words_beside_a_verdict_leave_it(reply):
    """What is asked before JSON, agrees with it, or is only supposed behind it does not take its verdict back."""
    assert "correct" == parse_choice(reply, VERDICTS).choice


def test_a_score_that_is_corrected_is_missing():
    """Two scores of which the second is marked are a contradiction; an explanation with numbers is none."""
    assert parse_score('{"score": 0.2} Correction. Score: 0.9').score is None
    assert 0.2 == parse_score('{"score": 0.2} because 2 of the 10 steps hold. Score: 0.2').score
    assert 0.2 == parse_score('{"score": 0.2} because 2 of the 10 steps hold').score
