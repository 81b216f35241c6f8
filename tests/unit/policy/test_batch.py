"""Laws of batches: matching by id, masks, global weights, micro-batches."""

import numpy as np
import pytest

from rangeline.errors import BadInputError
from rangeline.policy.batch import build_batch, micro_batches, pad_rows, rows_with_loss, token_weights
from rangeline.records import Advantages, RolloutSet


def rollouts(prompt_ids=("a", "a", "b"), lengths=(2, 0, 3), samples=None, logprob=-0.5, prompts=None):
    """Make rollouts of two prompts."""
    return RolloutSet(
        prompt_id_N=tuple(prompt_ids),
        sample_N=tuple(samples or range(len(prompt_ids))),
        completion_N=("",) * len(prompt_ids),
        prompt_token_ids_N=tuple(prompts or [(5, 6)] * len(prompt_ids)),
        token_ids_N=tuple(tuple(range(10, 10 + n)) for n in lengths),
        sampled_logprobs_N=tuple((logprob,) * n for n in lengths),
        finish_reason_N=("stop",) * len(prompt_ids),
        policy_version=3,
    )


def advantages(prompt_ids=("a", "a", "b"), values=(1.0, -1.0, 0.0)):
    """Make one advantage a rollout."""
    return Advantages(
        prompt_id_N=tuple(prompt_ids), value_N=values, active_N=[True] * len(prompt_ids), estimator="dr_grpo"
    )


def batch(**changes):
    """Make a batch of them."""
    return build_batch(rollouts(**changes), advantages(), pad_id=0, max_tokens=4)


def test_completion_tokens_are_the_loss_mask():
    """The loss mask covers exactly the completion, padding is on the right, and log-probs sit on their tokens."""
    made = batch()
    assert made.token_ids_BL.tolist() == [[5, 6, 10, 11, 0], [5, 6, 0, 0, 0], [5, 6, 10, 11, 12]]
    assert made.loss_mask_BL.astype(int).tolist() == [[0, 0, 1, 1, 0], [0, 0, 0, 0, 0], [0, 0, 1, 1, 1]]
    assert made.attention_mask_BL.sum(axis=1).tolist() == [4, 2, 5]
    assert made.sampled_logprobs_BL.tolist() == [[0, 0, -0.5, -0.5, 0], [0] * 5, [0, 0, -0.5, -0.5, -0.5]]
    assert made.completion_lengths_B.tolist() == [2, 0, 3]


def test_batch_counts_prompts_and_groups():
    """Groups are counted by prompt id and the policy version is carried."""
    made = batch()
    assert (made.num_groups, made.group_sizes, len(made), made.policy_version) == (2, {"a": 2, "b": 1}, 3, 3)


def test_batch_arrays_cannot_be_changed():
    """A batch never changes after it is made."""
    with pytest.raises(ValueError, match="read-only"):
        batch().advantage_B[0] = 5


@pytest.mark.parametrize(
    ("aggregation", "expected"),
    [("dr_grpo", [1 / 12] * 3), ("grpo", [1 / 6, 1 / 3, 1 / 9]), ("dapo", [1 / 5] * 3)],
)
def test_token_weights_divide_by_global_counts(aggregation, expected):
    """Weights are 1/(N L_max), 1/(N |o_i|) and 1/(all tokens), over all rollouts."""
    np.testing.assert_allclose(expected, token_weights(batch(), aggregation), rtol=1e-15)


def test_unknown_aggregation_is_refused():
    """An unknown aggregation is named, never replaced."""
    with pytest.raises(BadInputError, match="'aggregation' must be one of dr_grpo, grpo, dapo; got 'mean'"):
        token_weights(batch(), "mean")


def test_all_empty_completions_have_finite_weights():
    """A batch without one completion token divides by 1, not by 0."""
    assert np.isfinite(token_weights(batch(lengths=(0, 0, 0)), "dapo")).all()


def test_rows_without_signal_are_left_out():
    """Zero advantage drops a row unless another term reads it; an empty completion is always dropped."""
    assert rows_with_loss(batch(), keep_zero_advantage=False).tolist() == [0]
    assert rows_with_loss(batch(), keep_zero_advantage=True).tolist() == [0, 2]


def test_micro_batches_keep_the_token_budget():
    """Rows go longest first, rows times longest row stays within the budget, and a long row goes alone."""
    made = batch()
    assert [index.tolist() for index in micro_batches(made, [0, 1, 2], max_batch_tokens=9)] == [[2], [0, 1]]
    assert [index.tolist() for index in micro_batches(made, [0, 1, 2], max_batch_tokens=15)] == [[2, 0, 1]]
    assert [index.tolist() for index in micro_batches(made, [0, 1, 2], max_batch_tokens=1)] == [[2], [0], [1]]
    assert micro_batches(made, [], max_batch_tokens=9) == []


def test_pad_rows_of_nothing_is_empty():
    """No row gives arrays without rows."""
    assert [array.shape for array in pad_rows([], [], pad_id=0)] == [(0, 0)] * 3


def test_advantages_of_other_prompts_are_refused():
    """Equal lengths are not enough: prompt ids are compared row by row."""
    with pytest.raises(BadInputError, match=r"must follow the rollouts' prompt ids; got 'b' for 'a' \(row 1\)"):
        build_batch(rollouts(), advantages(("a", "b", "a")), pad_id=0, max_tokens=4)


def test_advantages_of_another_length_are_refused():
    """One advantage a rollout, no more and no less."""
    with pytest.raises(BadInputError, match="must have one row a rollout; got 2 for 3"):
        build_batch(rollouts(), advantages(("a", "b"), (1.0, 0.0)), pad_id=0, max_tokens=4)


def test_doubled_sample_is_refused():
    """The same sample of a prompt twice would count its advantage twice."""
    with pytest.raises(BadInputError, match="must hold each sample once; got sample 0 of prompt 'a' again"):
        build_batch(rollouts(samples=(0, 0, 0)), advantages(), pad_id=0, max_tokens=4)


def test_empty_prompt_is_refused():
    """The first completion token needs something before it."""
    with pytest.raises(BadInputError, match=r"must hold at least one token; got 0 \(row 2, prompt 'b'\)"):
        build_batch(rollouts(prompts=[(5,), (5,), ()]), advantages(), pad_id=0, max_tokens=4)


def test_completion_above_the_cap_is_refused():
    """A completion longer than L_max says that the cap is not that of the sampling."""
    with pytest.raises(BadInputError, match=r"must hold at most 2 tokens; got 3 \(row 2, prompt 'b'\)"):
        build_batch(rollouts(), advantages(), pad_id=0, max_tokens=2)


def test_no_rollout_is_refused():
    """An empty iteration is an error, not an empty update."""
    with pytest.raises(BadInputError, match="must hold at least one row; got 0"):
        build_batch(rollouts((), ()), advantages((), ()), pad_id=0, max_tokens=2)


def test_rows_of_a_prompt_share_a_micro_batch_where_its_reading_is_saved():
    """With prompts far longer than completions rows go by prompt, and by length where completions are longer."""
    ids, lengths = ("a", "b", "a", "b"), (4, 4, 1, 1)

    def parts(prompt_length):
        prompts = {"a": tuple(range(prompt_length)), "b": tuple(range(1, prompt_length + 1))}
        drawn = rollouts(ids, lengths, prompts=[prompts[name] for name in ids])
        made = build_batch(drawn, advantages(ids, (1.0,) * 4), pad_id=0, max_tokens=4)
        return [index.tolist() for index in micro_batches(made, range(4), max_batch_tokens=2 * (prompt_length + 4))]

    assert [[0, 2], [1, 3]] == parts(30)
    assert [[0, 1], [2, 3]] == parts(1)
