"""Range-GRPO advantages in the form that TRL calls: by prompt, by keyword, missing as 0, groups that sum to 0."""

import numpy as np
import pytest

from rangeline.advantages import range_advantages
from rangeline.errors import BadInputError
from rangeline.integrations.trl import RangeReward
from rangeline.records import RewardIntervals
from rangeline.rewards.verifiable import verifier_intervals


def _intervals(ids, lower, upper, missing=None):
    return RewardIntervals(
        prompt_id_N=tuple(ids),
        lower_N=lower,
        upper_N=upper,
        unbounded_N=[False] * len(lower),
        missing_N=missing or [False] * len(lower),
        support=(0.0, 1.0),
        source="s",
    )


def test_rewards_are_the_advantages():
    """What TRL is given are Range-GRPO advantages, and subtracting a group's mean leaves them as they are."""
    lower, upper = [0.1, 0.4, 0.0, 0.6], [0.3, 0.5, 1.0, 0.7]
    reward = RangeReward(lambda ids, texts, columns: _intervals(ids, lower, upper), reference_width=0.5)
    given = reward(prompts=["p"] * 4, completions=list("abcd"))
    expected = range_advantages(lower, upper, ["p"] * 4, [True] * 4, reference_width=0.5)
    assert expected.tolist() == given
    assert 0.0 == pytest.approx(np.mean(given), abs=1e-12)


def test_groups_are_made_by_prompt_and_not_by_position():
    """Completions of one prompt are compared wherever they stand."""
    score = lambda ids, texts, columns: verifier_intervals(ids, [float(t == "7") for t in texts])  # noqa: E731
    given = RangeReward(score)(prompts=["p", "q", "p", "q"], completions=["7", "7", "8", "7"])
    assert [0.5, 0.0, -0.5, 0.0] == given


def test_prompt_ids_of_the_data_set_win():
    """A column `prompt_id` tells apart two prompts of one text."""
    score = lambda ids, texts, columns: verifier_intervals(ids, [1.0, 0.0])  # noqa: E731
    assert [0.0, 0.0] == RangeReward(score)(prompts=["p", "p"], completions=["7", "8"], prompt_id=["a", "b"])


def test_missing_completion_gets_zero_and_leaves_the_others():
    """A completion without an interval moves nothing, and is no reward of 0 for its group."""
    score = lambda ids, texts, columns: _intervals(ids, [1, 0, 0.5], [1, 0, 0.5], [False, False, True])  # noqa: E731
    assert [0.5, -0.5, 0.0] == RangeReward(score)(prompts=["p"] * 3, completions=["a", "b", "c"])


def test_chats_and_columns_reach_the_score():
    """Of a chat completion its content is scored; columns with a value a completion come along, other things do not."""
    seen = []

    def score(ids, texts, columns):
        seen.append((texts, columns))
        return verifier_intervals(ids, [0.0] * len(ids))

    chat = [[{"role": "assistant", "content": "7"}], [{"role": "assistant", "content": "8"}]]
    RangeReward(score)(
        prompts=[[{"role": "user", "content": "q"}]] * 2, completions=chat, answer=["7", "7"], trainer_state=object()
    )
    assert [(["7", "8"], {"answer": ["7", "7"]})] == seen


def test_other_number_of_intervals_is_refused():
    """A score must answer row for row."""
    reward = RangeReward(lambda ids, texts, columns: verifier_intervals(("p",), (1.0,)))
    with pytest.raises(BadInputError, match="one interval a completion, in order; got 1 for 2"):
        reward(prompts=["p", "p"], completions=["a", "b"])


def test_trl_can_name_it():
    """TRL logs a reward function under its name."""
    assert RangeReward(lambda ids, texts, columns: None).__name__ == "range_reward"
