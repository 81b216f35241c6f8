"""The synthetic judge: what it sees of the truth, how often it sees clearly, and that it never changes its mind."""

import numpy as np
import pytest

from rangeline.errors import ConfigError
from rangeline.judge.rubric import parse_rubric
from rangeline.judge.synthetic import CLEAR_LEVEL, UNCLEAR_LEVEL, SyntheticJudge
from rangeline.records import UNKNOWN, RolloutSet
from rangeline.suites.candidate_world import DESIGNS, make_world

RUBRIC = """
name: candidates
coordinates:
  - {name: rating, kind: choice, question: "{prompt} {completion}", options: {a: "1", b: "2", c: "3", d: "4", e: "5"}}
  - {name: clear, kind: choice, question: "{prompt} {completion}", options: {unclear: "no", clear: "yes"}}
"""
AGREEMENT = RUBRIC + "  - {name: agreement, kind: agreement, cuts: [0.5]}\n"
WELL_FORMED = RUBRIC + "  - {name: whole, kind: well_formed}\n"


def _judge(design="neutral", rubric=RUBRIC, *, words=20, seed=0):
    return SyntheticJudge(make_world(design, words, seed=seed), parse_rubric(rubric, source="r"))


def _rollouts(answers):
    num = len(answers)
    return RolloutSet(
        prompt_id_N=tuple(prompt_id for prompt_id, _ in answers),
        sample_N=tuple(range(num)),
        completion_N=tuple(word or "" for _, word in answers),
        prompt_token_ids_N=((1,),) * num,
        token_ids_N=((2,),) * num,
        sampled_logprobs_N=((0.0,),) * num,
        finish_reason_N=("stop",) * num,
        policy_version=0,
    )


def _table(judge, answers, listed):
    prompts = dict.fromkeys((prompt_id for prompt_id, _ in answers), listed)
    return judge.judge(_rollouts(answers), candidates=prompts, extracted_N=[word for _, word in answers])


def _all_states(design, prompts=400):
    judge = _judge(design)
    listed = judge.world.ranking
    drawn = [judge.states(f"p{i}", listed) for i in range(prompts)]
    return judge, listed, np.array([[states[word] for word in listed] for states in drawn])


def test_same_choice_is_judged_alike_for_ever():
    """A verdict depends on world, prompt and word alone: not on row, place, group or what was asked before."""
    listed = _judge().world.words[:4]
    first = _table(_judge(), [("p", listed[0]), ("p", listed[1]), ("q", listed[0])], listed)
    again = _table(_judge(), [("q", listed[0]), ("p", listed[1]), ("p", listed[1]), ("p", listed[0])], listed)
    assert first.levels_NK.tolist() == again.levels_NK[[3, 1, 0]].tolist()
    assert again.levels_NK[1].tolist() == again.levels_NK[2].tolist()


def test_order_of_the_list_changes_no_verdict():
    """Noise belongs to a word in a prompt, not to its place in the list."""
    judge, other = _judge(), _judge()
    listed = judge.world.words[:6]
    assert judge.states("p", listed) == other.states("p", listed[::-1])


@pytest.mark.parametrize(("design", "easy", "hard"), [("neutral", 0.15, 0.85), ("milder", 0.10, 0.60)])
def test_hard_words_are_unclear_as_often_as_designed(design, easy, hard):
    """Easy and hard words are unclear with the probabilities of the design."""
    judge, listed, states = _all_states(design)
    is_hard = np.array([word in judge.world.hard for word in listed])
    unclear = states[:, :, 1] == UNCLEAR_LEVEL
    assert easy == pytest.approx(unclear[:, ~is_hard].mean(), abs=0.02)
    assert hard == pytest.approx(unclear[:, is_hard].mean(), abs=0.02)


def test_instance_design_makes_no_word_hard_of_itself():
    """In `instance` every word is unclear equally often, 40 % hard: .4 x .85 + .6 x .15 = .43."""
    _, _, states = _all_states("instance")
    by_word = (states[:, :, 1] == UNCLEAR_LEVEL).mean(axis=0)
    assert 0.43 == pytest.approx(by_word.mean(), abs=0.02)
    assert by_word.max() - by_word.min() < 0.2


@pytest.mark.parametrize("design", DESIGNS)
def test_unclear_judge_rates_only_where_the_design_says_so(design):
    """Clear candidates always have a rating; unclear ones have one exactly where unclear noise is defined."""
    _, _, states = _all_states(design, prompts=20)
    rated, clear = states[:, :, 0] != UNKNOWN, states[:, :, 1] == CLEAR_LEVEL
    assert rated[clear].all()
    assert (DESIGNS[design].unclear_noise is not None) == bool(rated[~clear].all())


@pytest.mark.parametrize(("design", "says_something"), [("guess", True), ("informative", True), ("homogeneous", False)])
def test_flag_tells_of_noise_where_the_design_says_so(design, says_something):
    """Unclear ratings miss the truth by more levels than clear ones, but for the design whose flag says nothing."""
    _, listed, states = _all_states(design)
    truth = np.minimum(np.linspace(1, 0, len(listed)) * 5, 4).astype(int)
    error, clear = np.abs(states[:, :, 0] - truth), states[:, :, 1] == CLEAR_LEVEL
    assert says_something == (error[~clear].mean() > error[clear].mean() + 0.1)


def test_word_that_is_not_listed_has_a_state_of_its_own():
    """An invalid answer is UNKNOWN in both choices, which no listed word ever is."""
    judge, listed, states = _all_states("neutral", prompts=20)
    table = _table(judge, [("p", "eel"), ("p", None)], listed)
    assert [[UNKNOWN, UNKNOWN]] * 2 == table.levels_NK.tolist()
    assert (states[:, :, 1] != UNKNOWN).all()


def test_agreement_and_form_are_filled_where_asked():
    """Further coordinates mean what they mean for any judge."""
    judge = _judge(rubric=AGREEMENT)
    listed = judge.world.words[:4]
    answers = [("p", listed[0]), ("p", listed[0]), ("p", listed[1]), ("p", None)]
    assert [1, 1, 0, UNKNOWN] == _table(judge, answers, listed).levels_NK[:, 2].tolist()
    assert [1, 1, 1, 0] == _table(_judge(rubric=WELL_FORMED), answers, listed).levels_NK[:, 2].tolist()


def test_digest_knows_world_design_and_rubric():
    """Judgments of another world, design or rubric can never be mixed."""
    digests = {
        _judge().digest,
        _judge("worse").digest,
        _judge(seed=1).digest,
        _judge(rubric=AGREEMENT).digest,
        _judge(words=16).digest,
    }
    assert 5 == len(digests)
    assert _judge().digest == _judge().digest


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("rating", "'coordinates' of a synthetic judge must hold 'rating'; got \\['mark', 'clear'\\]|got 'mark'"),
        ("clear", "must be choices 'rating' and 'clear'"),
    ],
)
def test_rubric_that_asks_for_more_is_refused(name, message):
    """A synthetic judge answers its own two questions only."""
    with pytest.raises(ConfigError, match=message):
        _judge(rubric=RUBRIC.replace(f"name: {name}", "name: mark"))


def test_rubric_without_a_rating_is_refused():
    """Without a rating there is nothing to learn the reward from."""
    lines = [line for line in RUBRIC.splitlines() if "rating" not in line]
    with pytest.raises(ConfigError, match="must hold 'rating'; got \\['clear'\\]"):
        _judge(rubric="\n".join(lines))
