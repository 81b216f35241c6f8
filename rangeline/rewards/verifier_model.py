"""General Reasoner's reward: a model decides whether an answer equals the reference, and length differences cost.

It computes one question a distinct answer of a prompt, and a reward from the decision.
reward = [Yes] (1 - penalty * min(|tokens of answer - tokens of reference|, cap)); 0 for No.
Nothing is divided.
Left out of the source: where the judge gives log-probabilities nothing is parsed, for the replies Yes and No are scored
after "Final Decision:". Where it fails, or holds both alike, the reward is missing. A whole rollout without an answer
gets 0.

Shapes: N rollouts flat.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from rangeline.judge.client import Answer, JudgeClient, OptionRequest, wait_for
from rangeline.records import BoolArray, RewardIntervals
from rangeline.rewards.source import point_intervals

SYSTEM = "You compare a student's answer with the right answer and decide whether they mean the same."
DECISIONS = ("Yes", "No")


@dataclass(frozen=True, slots=True)
class Comparison:
    """What is asked of one rollout."""

    question: str
    answer: str | None
    """None where the rollout gave none."""
    reference: str


def request_of(comparison: Comparison) -> OptionRequest:
    """Return the question to the judge; texts in it are data, and closed off by marks of their own."""
    question = (
        f"Question:\n<<<\n{comparison.question}\n>>>\n\nRight answer:\n<<<\n{comparison.reference}\n>>>\n\n"
        f"Student's answer:\n<<<\n{comparison.answer}\n>>>\n\n"
        "Is the student's answer equal to the right answer? Final Decision:"
    )
    return OptionRequest(system=SYSTEM, question=question, options=DECISIONS)


def decide(answer: Answer) -> bool | None:
    """Return the decision that values of Yes and No make; None where the judge failed or they are equal."""
    if answer.values is None:
        return None
    yes, no = answer.values
    if np.isnan(yes) or np.isnan(no) or yes == no:
        return None
    return bool(yes > no)


def verifier_model_intervals(
    prompt_id_N: Sequence[str],
    comparison_N: Sequence[Comparison],
    missing_N: BoolArray,
    *,
    judge: JudgeClient,
    count_tokens: Callable[[str], int],
    token_penalty: float = 0.05,
    max_tokens_apart: int = 10,
) -> RewardIntervals:
    """Ask the judge about each answer, and make zero-width intervals.

    Parameters
    ----------
    prompt_id_N, comparison_N
        Prompt of each rollout, and what to compare.
    missing_N
        True where nobody can say what the answer is: not asked, no reward.
    judge
        Scores the two decisions; equal questions are asked once.
    count_tokens
        Tokens of a text.
    token_penalty, max_tokens_apart
        penalty and cap of the length rule.

    Returns
    -------
    RewardIntervals
        Source `verifier_model`; support [min(0, 1 - penalty * cap), 1].

    Notes
    -----
    General Reasoner's public code; that the decision is scored, not written, is ours.
    """
    asked = {
        item: request_of(item)
        for item, missing in zip(comparison_N, missing_N, strict=True)
        if item.answer is not None and not missing
    }
    answers = wait_for(judge.ask(list(asked.values()))) if asked else []
    decisions = dict(zip(asked, map(decide, answers), strict=True))
    reward_N = np.zeros(len(prompt_id_N))
    for i, item in enumerate(comparison_N):
        if item in asked:
            decision = decisions[item]
            apart = abs(count_tokens(item.answer or "") - count_tokens(item.reference))
            length_rule = 1.0 - token_penalty * min(apart, max_tokens_apart)
            reward_N[i] = np.nan if decision is None else length_rule if decision else 0.0
    support = (min(0.0, 1.0 - token_penalty * max_tokens_apart), 1.0)
    return point_intervals(prompt_id_N, reward_N, support=support, source="verifier_model", missing_N=missing_N)
