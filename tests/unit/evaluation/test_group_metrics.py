import pytest

from rangeline.errors import BadInputError
from rangeline.evaluation.group_metrics import consensus_at_k, g_pass_at_k


def test_majority_of_all_completions():
    """With k = n the most frequent answer decides, right or wrong."""
    assert consensus_at_k(["7", "7", "8"], [True, True, False], 3) == 1.0
    assert consensus_at_k(["7", "8", "8"], [True, False, False], 3) == 0.0


def test_a_shared_first_place_counts_in_part():
    """A right answer that ties with two wrong ones has a third of a chance."""
    assert pytest.approx(1 / 3) == consensus_at_k(["7", "8", "9"], [True, False, False], 3)


def test_right_answers_in_two_writings_are_one():
    """What the checker calls right votes together, though it is written in two ways."""
    assert consensus_at_k(["1/2", "0.5", "3"], [True, True, False], 3) == 1.0


def test_silence_casts_no_vote():
    """A completion without an answer neither wins nor ties."""
    assert consensus_at_k(["7", None, None], [True, False, False], 3) == 1.0
    assert consensus_at_k([None, None], [False, False], 2) == 0.0


def test_one_vote_is_the_mean():
    """cons@1 is the share of right completions."""
    assert pytest.approx(2 / 5) == consensus_at_k(["1", "1", "2", None, "3"], [True, True, False, False, False], 1)


def test_order_of_completions_changes_nothing():
    """All draws are counted, so that no order enters."""
    answers, right = ["7", "8", "8", "7", "9"], [True, False, False, True, False]
    turned = consensus_at_k(answers[::-1], right[::-1], 3)
    assert turned == consensus_at_k(answers, right, 3)


def test_many_completions_are_counted_exactly():
    """Sixty-four completions with many answers take a moment, and stay in [0, 1]."""
    answers = [str(i % 13) for i in range(64)]
    value = consensus_at_k(answers, [answer == "0" for answer in answers], 32)
    assert 0 < value < 1


def test_threshold_is_no_victim_of_rounding():
    """0.1 of 30 completions is three, though the float product lies above 3."""
    assert g_pass_at_k(30, 3, 30, 0.1) == 1.0


def test_steadiness_falls_with_the_threshold():
    """The more completions must be right, the smaller the chance."""
    values = [g_pass_at_k(8, 5, 4, tau) for tau in (0.25, 0.5, 0.75, 1.0)]
    assert sorted(values, reverse=True) == values


@pytest.mark.parametrize("k", [0, 4])
def test_k_must_lie_within_the_completions(k):
    """Neither no vote nor more votes than completions."""
    with pytest.raises(BadInputError, match=rf"'k' must lie in \[1, 3\], the valid completions; got {k}"):
        consensus_at_k(["1", "2", "3"], [True, False, False], k)
    with pytest.raises(BadInputError, match=rf"'k' must lie in \[1, 3\], the valid completions; got {k}"):
        g_pass_at_k(3, 1, k, 0.5)


@pytest.mark.parametrize("threshold", [0.0, -0.5, 1.5])
def test_threshold_is_a_share(threshold):
    """Only a share above 0 and up to 1 can be asked for."""
    with pytest.raises(BadInputError, match=r"'threshold' must lie in \(0, 1\]; got"):
        g_pass_at_k(4, 2, 2, threshold)


def test_verdicts_are_paired_with_answers():
    """A verdict too few is refused."""
    with pytest.raises(BadInputError, match="'right' must have one verdict an answer; got 1 for 2"):
        consensus_at_k(["1", "2"], [True], 1)


def test_more_right_than_completions_is_refused():
    """Right completions are a part of the valid ones."""
    with pytest.raises(BadInputError, match=r"'num_right' must lie in \[0, 2\]; got 3"):
        g_pass_at_k(2, 3, 1, 0.5)
