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
