"""Choice of an estimator: hand-worked cosines, what wins where, and what is refused."""

import numpy as np
import pytest

from rangeline.advantage_choice import Candidate, alignment, auto_reference_width, choose, standard_candidates
from rangeline.errors import BadInputError, ConfigError
from rangeline.records import RewardIntervals

MIDDLE, UPPER, PLAIN = standard_candidates(0.25)


def intervals_of(ids, center, half):
    """Make intervals from centers and half widths."""
    none, center, half = np.zeros(len(ids), dtype=bool), np.asarray(center), np.asarray(half)
    return RewardIntervals(
        prompt_id_N=tuple(ids),
        lower_N=center - half,
        upper_N=center + half,
        unbounded_N=none,
        missing_N=none,
        support=(0.0, 1.0),
        source="judge_interval",
    )


def test_a_cosine_by_hand():
    """Truths 1, .5, 0 against centers .5, 1, 0: credits (0, .5, -.5) and (.5, 0, -.5) have a cosine of one half."""
    intervals = intervals_of("qqq", [0.5, 1.0, 0.0], [0.0, 0.0, 0.0])
    assert 0.5 == pytest.approx(alignment(intervals, [1.0, 0.5, 0.0], PLAIN, tilt=0.0))


def test_a_tilt_forgets_the_bad_rollouts():
    """A pair at the bottom told apart rightly and one at the top wrongly: the tilted score is the worse one."""
    intervals = intervals_of("qqqq", [0.8, 0.9, 0.1, 0.0], [0.0] * 4)
    truth = [1.0, 0.9, 0.1, 0.0]
    assert alignment(intervals, truth, PLAIN, tilt=8.0) < alignment(intervals, truth, PLAIN, tilt=0.0)


def test_a_group_counts_by_its_weight():
    """A group of weight 0 has no say, and one of weight 2 counts as two."""
    intervals = intervals_of("qqrr", [0.9, 0.1, 0.1, 0.9], [0.0] * 4)
    truth = [1.0, 0.0, 0.5, 0.0]
    alone = alignment(intervals, truth, PLAIN, weight_N=[1, 1, 0, 0], tilt=0.0)
    assert 1.0 == pytest.approx(alone)
    twice = intervals_of("qqrrss", [0.9, 0.1, 0.1, 0.9, 0.1, 0.9], [0.0] * 6)
    expected = alignment(twice, [*truth, 0.5, 0.0], PLAIN, tilt=0.0)
    assert expected == pytest.approx(alignment(intervals, truth, PLAIN, weight_N=[1, 1, 2, 2], tilt=0.0))


def test_an_unsure_judge_that_is_off_is_attenuated():
    """Where wide intervals have centers that mislead, the paper's rule is chosen over the plain middle."""
    intervals = intervals_of("qqqq", [0.9, 0.7, 0.5, 0.5], [0.05, 0.05, 0.5, 0.5])
    choice = choose(intervals, [0.9, 0.7, 1.0, 0.0], (PLAIN, MIDDLE))
    assert MIDDLE == choice.chosen


def test_even_widths_choose_the_first():
    """Of candidates that score the same, the first is taken; there, nothing is won by the others."""
    intervals = intervals_of("qq", [0.9, 0.1], [0.1, 0.1])
    assert PLAIN == choose(intervals, [1.0, 0.0], (PLAIN, MIDDLE)).chosen


def test_the_best_ones_that_a_judge_cannot_rate_choose_the_upper_end():
    """Where the best rollouts are the unclear ones, an end that does not punish them is chosen."""
    intervals = intervals_of("qqqq", [0.5, 0.5, 0.7, 0.2], [0.5, 0.5, 0.1, 0.1])
    assert UPPER == choose(intervals, [1.0, 1.0, 0.7, 0.2], standard_candidates(0.25)).chosen


def test_no_labelled_group_takes_the_papers_rule():
    """Without two labelled rollouts of one prompt every score is 0, and the first candidate is `range`."""
    choice = choose(intervals_of("ab", [0.2, 0.9], [0.1, 0.1]), [0.0, 1.0], standard_candidates(0.25))
    assert (MIDDLE, 0) == (choice.chosen, choice.num_groups)
    assert [0.0] * 3 == [score for _, score in choice.scores]


def test_a_choice_can_be_written():
    """Its JSON names the chosen settings and each candidate's score."""
    content = choose(intervals_of("qq", [0.9, 0.1], [0.1, 0.1]), [1.0, 0.0], (PLAIN, MIDDLE)).to_json()
    assert "dr_grpo" == content["chosen"]["estimator"]
    assert ["dr_grpo", "range"] == [item["estimator"] for item in content["scores"]]
    assert [1, 1] == pytest.approx([item["score"] for item in content["scores"]])


def test_the_automatic_width_is_half_the_lower_quartile_of_pairs():
    """Half widths 0, .1, .4 and pair sums .1, .4, .5 have a lower quartile of .25."""
    assert 0.125 == pytest.approx(auto_reference_width(intervals_of("qqq", [0.5] * 3, [0.0, 0.1, 0.4])))


@pytest.mark.parametrize("ids", ["ab", "qq"])
def test_without_widths_the_default_width_stands(ids):
    """No pair, or pairs of points, say nothing of a scale."""
    assert 0.25 == auto_reference_width(intervals_of(ids, [0.2, 0.8], [0.0, 0.0]))


def test_a_width_must_be_positive():
    """A candidate without a usable width is refused as everywhere."""
    broken = Candidate(estimator="range", reduction="middle", reference_width=0.0)
    with pytest.raises(ConfigError, match="'reference_width' must be positive"):
        alignment(intervals_of("qq", [0.2, 0.8], [0.1, 0.1]), [0.0, 1.0], broken, tilt=0.0)


@pytest.mark.parametrize(("truth", "name"), [([1.0], "range"), ([1.0, 0.0], "uarm")])
def test_bad_calls_are_refused(truth, name):
    """Truths must be one a rollout, and the estimator one of pairs."""
    candidate = Candidate(estimator=name, reduction="middle", reference_width=0.25)
    with pytest.raises(BadInputError, match="'truth_N' and 'weight_N' must have one value"):
        alignment(intervals_of("qq", [0.2, 0.8], [0.1, 0.1]), truth, candidate, tilt=0.0)
