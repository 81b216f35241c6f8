"""What a judge wrote is read as one choice or one score, or is missing with a reason."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangeline.judge.reply_parser import parse_choice, parse_score

VERDICTS = ("correct", "incorrect")
YES_NO = ("yes", "no")


@pytest.mark.parametrize(
    ("reply", "choices", "choice"),
    [
        ("incorrect", VERDICTS, "incorrect"),
        ("INCORRECT.", VERDICTS, "incorrect"),
        ("The result is not correct", VERDICTS, "incorrect"),
        ("The result isn't correct", VERDICTS, "incorrect"),
        ("The right answer is 7, so this one is incorrect", VERDICTS, "incorrect"),
        ("The answer is yes", YES_NO, "yes"),
        ("I rate it 4.", ("1", "2", "3", "4", "5"), "4"),
        ("Rating: 4/5", ("1", "2", "3", "4", "5"), "4"),
        ("It is not incorrect", VERDICTS, "correct"),
        ("Final decision: **Yes**", YES_NO, "yes"),
        ('Final decision: No. (Not "final decision: yes")', YES_NO, "no"),
        ("**Verdict:** not correct", VERDICTS, "incorrect"),
        ("There is no mistake. Yes.", YES_NO, "yes"),
        ('"yes"', YES_NO, "yes"),
        ("[no]", YES_NO, "no"),
    ],
)
def test_choice_is_read_with_its_negation(reply, choices, choice):
    """The longest word counts, a negation turns a pair of choices round, and quoted text is not said."""
    assert choice == parse_choice(reply, choices).choice


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (None, "no content"),
        ("", "empty"),
        ("\n \n", "empty"),
        ("<think>yes, it is", "inside thinking"),
        ("I see no mistake here", "no choice named"),
        ("Oui, exact", "no choice named"),
        ("Yes. No.", "ambiguous"),
        ("Verdict: yes. Verdict: no", "ambiguous"),
        ('{"verdict": "perhaps"}', "JSON without a choice"),
        ('{"verdict": "ye', "JSON without a choice"),
        ("I am sorry, I cannot judge this.", "refused"),
    ],
)
def test_choice_without_one_reading_is_missing(reply, reason):
    """A reply that names no choice, or two, gives None and says why."""
    got = parse_choice(reply, YES_NO)
    assert (None, reason) == (got.choice, got.reason)


@pytest.mark.parametrize("hedge", ["partially", "mostly", "almost", "perhaps", "neither"])
def test_hedged_choice_is_ambiguous(hedge):
    """What is partly right is neither of two choices."""
    assert "ambiguous" == parse_choice(f"This is {hedge} correct", VERDICTS).reason


def test_third_choice_makes_negation_open():
    """With three choices a negated one leaves two, so nothing is read."""
    assert parse_choice("not correct", (*VERDICTS, "unsure")).choice is None


@pytest.mark.parametrize("wrapper", ["{}", "```json\n{}\n```", "Here it is: {}", "<think>maybe</think>{}"])
@pytest.mark.parametrize("key", ["verdict", "Final Decision", "ANSWER"])
def test_choice_in_json_is_read_wherever_it_stands(wrapper, key):
    """One JSON object with a verdict is read with or without fences, prose and thinking around it."""
    assert "no" == parse_choice(wrapper.replace("{}", f'{{"{key}": "No"}}'), YES_NO).choice


@pytest.mark.parametrize(
    ("reply", "score"),
    [
        ("0.8", 0.8),
        ("Step 1 and step 2 are fine. Score: 0.2", 0.2),
        ("I read 1/2 of it. Score: 4/5", 0.8),
        ("8 out of 10", 0.8),
        ("80 %", 0.8),
        ("Rating: **3 of 5**", 0.6),
        ("1e-1", 0.1),
        ('{"SCORE": 0.8}', 0.8),
        ('{"score": "4/5"}', 0.8),
        ("Score: 0.2. Final score: 0.9", 0.9),
        ("Score: 0", 0.0),
    ],
)
def test_score_is_divided_by_its_own_scale(reply, score):
    """A marked score wins over other numbers and is brought to [0, 1] by the scale it names."""
    assert score == pytest.approx(parse_score(reply).score)


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("10/0", "not finite"),
        ("-0.5", "out of range"),
        ("Score: 7", "out of range"),
        ('{"SCORE": 7}', "out of range"),
        ('{"SCORE": NaN}', "not finite"),
        ('{"SCORE": null}', "JSON without a score"),
        ('{"SCORE": true}', "JSON without a score"),
        ('{"SCORE": 0.', "JSON without a score"),
        ("between 0.5 and 0.6", "ambiguous"),
        ("Score: 0.2 and later score: 0.9", "ambiguous"),
        ("0,8", "no score given"),
        ("1.2.3", "no score given"),
        (None, "no content"),
        ("", "empty"),
    ],
)
def test_score_outside_its_scale_is_missing(reply, reason):
    """A number that is out of range, not finite, one of several or cut off gives None and says why."""
    got = parse_score(reply)
    assert (None, reason) == (got.score, got.reason)


def test_cut_off_reply_loses_its_last_word():
    """A number at the very end of a truncated reply may go on, so it is not read."""
    assert ["no score given", "cut off"] == [parse_score(text, truncated=True).reason for text in ("Score: 0.", "0.")]
    assert 0.2 == parse_score("Score: 0.2 since the steps are", truncated=True).score


@given(st.text(max_size=200))
def test_any_text_is_read_without_failure(text):
    """No text makes the parser raise, and every score lies in [0, 1]."""
    score = parse_score(text).score
    assert score is None or 0 <= score <= 1
    assert parse_choice(text, YES_NO).choice in (None, *YES_NO)
