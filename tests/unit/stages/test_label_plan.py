"""Plans for few labels: margins at every size, and limits that are told where they bind and nowhere else."""

import pytest

from rangeline.config import PipelineConfig
from rangeline.conformal.intervals import minimum_calibration_rows
from rangeline.stages.label_plan import (
    FEWEST_REFERENCES,
    label_limits,
    label_problems,
    may_recalibrate,
    plan_iterations,
    plan_labels,
    wanted_prompts,
)

MANY = {"policy": 900, "ratio": 90, "source": 90, "warmup": 0, "calibration": 400, "audit": 60, "evaluation": 90}


def config(alpha=0.1, **sections):
    """Return settings at a miss rate."""
    return PipelineConfig.model_validate({"intervals": {"alpha": alpha}, **sections})


@pytest.mark.parametrize("references", [FEWEST_REFERENCES, 19, 20, 44, 45, 199, 200, 5000])
def test_calibration_may_lose_half_its_prompts_at_every_size(references):
    """The share of calibration holds twice what alpha needs, and the shares sum to one."""
    plan = plan_labels(references)
    assert pytest.approx(1) == sum(plan.shares.values())
    assert wanted_prompts(references)["calibration"] >= 2 * minimum_calibration_rows(plan.alpha)


def test_more_references_never_give_a_larger_miss_rate():
    """Alpha falls, or stays, as references are added."""
    rates = [plan_labels(count).alpha for count in range(FEWEST_REFERENCES, 400)]
    assert sorted(rates, reverse=True) == rates


def test_iterations_follow_the_prompts():
    """About two passes, within 4 and 20."""
    assert [4, 4, 13, 20] == [plan_iterations(count) for count in (1, 32, 100, 10_000)]


def test_enough_labels_are_told_no_limit():
    """Where every pool is large, nothing is said."""
    assert () == label_limits(MANY, config())
    assert () == label_problems(MANY, config())


@pytest.mark.parametrize(
    ("pool", "count", "words"),
    [
        ("calibration", 10, "a run stops where more than 1 are lost"),
        ("calibration", 20, "differs from 0.9 by about 6 points"),
        ("audit", 7, "an iteration audits 7 prompts, and the gate asks for 8"),
        ("audit", 8, "Recalibration needs 9 audited prompts; there are 8"),
        ("evaluation", 12, "measured on 12 prompts"),
    ],
)
def test_each_limit_is_told_where_it_binds(pool, count, words):
    """One pool that is too small gives its own sentence."""
    assert any(words in limit for limit in label_limits({**MANY, pool: count}, config()))


def test_the_gate_asks_for_rows_as_well_as_prompts():
    """With two rollouts a prompt, thirty-two rows are sixteen prompts."""
    told = label_limits({**MANY, "audit": 15}, config(sampling={"group_size": 2}))
    assert any("the gate asks for 16" in limit for limit in told)


def test_a_calibration_pool_below_alphas_fewest_is_a_problem():
    """The run would stop before its first iteration, and says what to change."""
    problems = label_problems({**MANY, "calibration": 8}, config())
    assert ["the calibration pool must hold 9 prompts for alpha=0.1; it has 8"] == [
        problem.partition(". ")[0] for problem in problems
    ]


def test_audits_become_a_calibration_set_with_the_same_margin():
    """Eighteen prompts for alpha 0.1, as for calibration itself."""
    assert [False, True] == [may_recalibrate(count, 0.1) for count in (17, 18)]
