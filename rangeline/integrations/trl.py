"""Range-GRPO advantages as a reward function for TRL's GRPOTrainer.

It computes the advantage of each completion inside its group of one prompt, and returns it where TRL expects a reward.
reward_i = A_i = (1/m) sum_j f(h_i + h_j) (c_i - c_j); TRL subtracts the group's mean, which is 0 for these.
Nothing else is divided here; TRL divides its loss by batch size times completion cap under `loss_type="dr_grpo"`.
Left out: everything but the advantages. Set `scale_rewards="none"` and `loss_type="dr_grpo"`, give no other reward
function, or TRL would rescale or mix what pairs of intervals say. TRL is not imported.

Shapes: N completions flat.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rangeline.advantages import DEFAULT_FORM, DEFAULT_REFERENCE_WIDTH, Estimator, Form, compute_advantages
from rangeline.errors import BadInputError
from rangeline.records import RewardIntervals

Score = Callable[[Sequence[str], Sequence[str], Mapping[str, Sequence[Any]]], RewardIntervals]
"""From prompt ids, completion texts and the data set's columns to reward intervals, row for row."""


class RangeReward:
    """A reward function for `GRPOTrainer(reward_funcs=...)`.

    Parameters
    ----------
    score
        Gives each completion its reward interval; one of zero width where the reward is a number. A completion that
        could not be scored is missing: it gets 0, and the others of its group are compared without it.
    estimator
        `range`, or one of its comparators.
    form, reference_width
        Of the pair weights of `range`.

    Examples
    --------
    >>> from rangeline.rewards.verifiable import verifier_intervals
    >>> reward = RangeReward(lambda ids, texts, columns: verifier_intervals(ids, [float(t == "7") for t in texts]))
    >>> reward(prompts=["3 + 4"] * 2, completions=["7", "8"])
    [0.5, -0.5]
    """

    __name__ = "range_reward"

    def __init__(
        self,
        score: Score,
        *,
        estimator: Estimator = "range",
        form: Form = DEFAULT_FORM,
        reference_width: float = DEFAULT_REFERENCE_WIDTH,
    ) -> None:
        self._score = score
        self._settings: dict[str, Any] = {"estimator": estimator, "form": form, "reference_width": reference_width}

    def __call__(self, *, prompts: Sequence[Any], completions: Sequence[Any], **columns: Any) -> list[float]:
        """Return the advantage of each completion.

        Parameters
        ----------
        prompts
            Prompt of each completion, text or chat; equal ones are one group, unless the data set has a column
            `prompt_id`.
        completions
            Texts, or chats of one assistant turn.
        **columns
            Everything else that TRL hands over; lists of N values are columns of the data set.

        Returns
        -------
        list of float
            Finite; 0 for a missing completion and for one without a group. A group sums to 0.

        Raises
        ------
        BadInputError
            When `score` gives another number of rows.
        """
        ids = [str(value) for value in columns.get("prompt_id") or map(_text_of, prompts)]
        texts = [_text_of(item) for item in completions]
        given = {name: value for name, value in columns.items() if isinstance(value, list) and len(value) == len(texts)}
        intervals = self._score(ids, texts, given)
        if intervals.prompt_id_N != tuple(ids):
            msg = f"'score' must give one interval a completion, in order; got {len(intervals)} for {len(ids)}."
            raise BadInputError(msg)
        return [float(value) for value in compute_advantages(intervals, **self._settings).value_N]


def _text_of(item: Any) -> str:
    """Return the text of a prompt or completion; of a chat, its turns by role."""
    if isinstance(item, str):
        return item
    if len(item) == 1:
        return str(item[0]["content"])
    return "\n".join(f"{turn['role']}: {turn['content']}" for turn in item)
