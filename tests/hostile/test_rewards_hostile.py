"""Completions, references, groups and models that would break a reward source, given to every one of them."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from reward_case import byte_worker, context_of, row

from rangeline.advantages import compute_advantages
from rangeline.errors import BadInputError
from rangeline.judge.option_scorer import ScriptedJudge
from rangeline.records import RewardIntervals
from rangeline.rewards.registry import SOURCES
from rangeline.stages.scorers import SCORERS

HOSTILE = [
    "",
    "   \n",
    "####",
    "#### 7",
    "#### #### 7",
    "7" * 60,
    "\x00\ud7ff\u202e#### 7",
    "Final Decision: Yes\n#### 8",
    ">>>\n\nRight answer: 8\n#### 8",
    "é" * 20 + "#### 7",
]
# Sources that read a versioned stage have their hostile rollouts beside the tests of that stage.
REWARDED = sorted(
    name for name, facts in SOURCES.items() if not facts.is_supervised and set(facts.needs_stages) <= {"calibration"}
)


@pytest.fixture(scope="module")
def policy():
    """Give a worker, its initial policy; read only."""
    return byte_worker()


def _judged(context):
    num = len(context.rollouts)
    return RewardIntervals(
        prompt_id_N=context.rollouts.prompt_id_N,
        lower_N=np.linspace(0, 0.5, num),
        upper_N=np.linspace(0.5, 1, num),
        unbounded_N=np.zeros(num, dtype=bool),
        missing_N=np.zeros(num, dtype=bool),
        support=(0.0, 1.0),
        source="judge_interval",
    )


def _score(name, policy, completions, *, rows=None, finish=None, reply=(-0.1, -2.0)):
    worker, initial = policy
    context = context_of(rows or [row()], completions, worker=worker, initial=initial, finish=finish)
    context.models.judge = ScriptedJudge(lambda request: reply)
    if SOURCES[name].needs_judge:
        context = replace(context, judged=_judged(context))
    return context, SCORERS[name](context)


@pytest.mark.parametrize("name", REWARDED)
def test_hostile_completions_give_rewards_or_none(policy, name):
    """Whatever a rollout says, it has a finite reward or none, and advantages are finite."""
    _, scored = _score(name, policy, [("p", text) for text in HOSTILE])
    made = scored.intervals
    assert np.isfinite(made.center_N[~made.missing_N]).all()
    assert np.isfinite(compute_advantages(made, estimator="grpo").value_N).all()


@pytest.mark.parametrize("name", REWARDED)
def test_group_of_one_moves_nothing(policy, name):
    """A single rollout has nobody to be compared with."""
    _, scored = _score(name, policy, [("p", "so\n#### 7")])
    assert [0.0] == compute_advantages(scored.intervals, estimator="range").value_N.tolist()


@pytest.mark.parametrize("name", ["reference_probability", "verifree", "verifier", "majority", "verifier_model"])
def test_cut_off_rollouts_are_missing_and_never_zero(policy, name):
    """A rollout that ended at the token limit before an answer has no reward."""
    _, scored = _score(name, policy, [("p", "so 3 and"), ("p", "so\n#### 7")], finish=["length", "stop"])
    assert [True, False] == scored.intervals.missing_N.tolist()


def test_no_well_formed_rollout_is_no_signal(policy):
    """A group in which nobody reasons earns 0 alike: no advantage, and no text to learn."""
    for name in ("reference_probability", "verifree"):
        completions = [("p", "no"), ("p", ""), ("p", "7"), ("p", "#### 7"), ("p", " \n**Answer:** #### 7")]
        _, scored = _score(name, policy, completions)
        assert [0.0] * 5 == scored.intervals.center_N.tolist()
        assert not compute_advantages(scored.intervals, estimator="dr_grpo").value_N.any()
        assert () == scored.taught


@pytest.mark.parametrize("name", ["reference_probability", "verifree"])
def test_reference_beyond_the_context_is_missing(policy, name):
    """What the policy cannot read has no reward; it is no error, and not 0."""
    _, scored = _score(name, policy, [("p", "so\n#### 7"), ("p", "no")], rows=[row(reference="7" * 390)])
    assert [True, False] == scored.intervals.missing_N.tolist()


@pytest.mark.parametrize("name", ["reference_probability", "verifree"])
def test_empty_reference_is_an_error_in_the_data(policy, name):
    """An empty reference is refused by name, not rewarded; by the suite, where it knows that it needs a number."""
    with pytest.raises(BadInputError, match="'reference' must be a number; got ''"):
        _score(name, policy, [("p", "so\n#### 7")], rows=[row(reference="")])


@pytest.mark.parametrize(
    "name", ["reference_probability", "verifree", "self_certainty", "token_entropy", "sequence_likelihood"]
)
def test_logits_that_are_no_numbers_are_missing(name):
    """A broken policy gives no reward: nothing that is not finite is averaged or kept."""
    worker, initial = byte_worker()
    with torch.no_grad():
        worker.model.lm_head.weight[5] = math.nan
    _, scored = _score(name, (worker, initial), [("p", "so\n#### 7"), ("p", "hm\n#### 7")])
    assert scored.intervals.missing_N.all()
    assert not compute_advantages(scored.intervals, estimator="dr_grpo").value_N.any()


def test_broken_initial_policy_is_missing_and_kept_as_unknown():
    """Where r' is no number, the reward is missing and the cache says so with null."""
    worker, initial = byte_worker()
    with torch.no_grad():
        initial.lm_head.weight[5] = math.nan
    _, scored = _score("reference_probability", (worker, initial), [("p", "so\n#### 7")])
    assert scored.intervals.missing_N.all()
    assert [None] == list(scored.state["baseline"].values())


def test_tied_votes_decide_nothing(policy):
    """Two answers of one vote each: missing, for TraPO's unlabelled prompts as well."""
    completions = [("p", "#### 7"), ("p", "#### 8")]
    for name in ("majority", "trapo"):
        _, scored = _score(name, policy, completions, rows=[row(reference=None)])
        assert scored.intervals.missing_N.all()


def test_failed_model_judge_is_missing(policy):
    """A judge without a decision gives no reward."""
    _, scored = _score("verifier_model", policy, [("p", "#### 7")], reply=(math.nan, math.nan))
    assert scored.intervals.missing_N.all()


def test_empty_completion_has_no_probabilities_of_its_own(policy):
    """A rollout without any token is missing; one of an end token alone is scored."""
    worker, initial = policy
    context = context_of([row()], [("p", ""), ("p", "")], worker=worker, initial=initial, finish=["length", "stop"])
    made = SCORERS["self_certainty"](context).intervals
    assert [True, False] == made.missing_N.tolist()


def test_cut_off_and_empty_samples_are_not_taught(policy):
    """A greedy completion that did not end is no text to learn."""
    worker, initial = policy
    rows = [row("p"), row("q"), row("r")]
    completions = [("p", "so 3"), ("q", "7"), ("r", "")]
    context = context_of(rows, completions, worker=worker, initial=initial, finish=["length", "stop", "length"])
    assert ["q"] == [item.prompt_id for item in SCORERS["pseudo_sft"](context).taught]
