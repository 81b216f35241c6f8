"""Summaries of designs from runs by hand, and the page and tables made of them."""

import copy

import pytest

from rangeline.errors import BadInputError
from rangeline.evaluation.comparison_curves import curves
from rangeline.evaluation.comparison_page import comparison_page
from rangeline.evaluation.comparison_summary import require_paired, summarise_design
from rangeline.evaluation.comparison_text import (
    ComparisonSummary,
    finding,
    header,
    legend,
    markdown,
    plain,
    rows,
)


def _row(number, accuracy=None, *, covered=9, flips=2):
    share = {"num_covered": covered, "num_judged": 10, "mean_width": 0.4, "unbounded_share": 0.0}
    row = {
        "iteration": number,
        "audit": share,
        "policy": share,
        "ess_share": 0.5,
        "rms": 0.1,
        "midpoint_rms": 0.2,
        "flips": {"num_credited": 20, "num_flips": flips, "num_agree": flips // 2, "num_disagree": flips - flips // 2},
        "rollouts": {"policy": 8, "ratio": 4, "audit": 4},
    }
    if number == 1:
        row["rollouts_sha256"] = "same"
    if accuracy is not None:
        row |= {"accuracy": accuracy, "reward": None}
    return row


def _run(method, seed, accuracy, *, estimator="range", covered=9):
    return {
        "design": "neutral",
        "method": method,
        "estimator": estimator,
        "rewards": "judge",
        "role": "test",
        "seed": seed,
        "learning_rate": 0.01,
        "num_held_out": 5,
        "held_out_sha256": "prompts",
        "target": 0.9,
        "rows": [
            {"iteration": 0, "accuracy": 0.1, "reward": None},
            _row(1, covered=10),
            _row(2, accuracy, covered=covered),
        ],
    }


def _runs():
    ours = [_run("range", seed, value) for seed, value in enumerate([0.5, 0.6, 0.7])]
    return ours + [
        _run("mid-dr_grpo", seed, value, estimator="dr_grpo", covered=8) for seed, value in enumerate([0.4, 0.6, 0.5])
    ]


def _summary(runs=None, **over):
    settings = {"reference": "range", "methods": ["range", "mid-dr_grpo"], "missing": (), "confidence": 0.95}
    return summarise_design(runs or _runs(), **{**settings, **over})


def test_numbers_of_a_design_by_hand():
    """Accuracy is that of the last look, coverage that of all rollouts of a run, budgets are sums."""
    ours, mid = _summary().methods
    assert (0.6, 0.95, 0.9) == pytest.approx((ours.accuracy.mean, ours.coverage.mean, mid.coverage.mean))
    assert (0.1, 2, 0) == (pytest.approx(mid.difference.mean), mid.difference.num_wins, mid.difference.num_losses)
    assert ours.difference is None
    assert {"policy": 16, "ratio": 8, "audit": 8} == ours.rollouts
    assert (120, 12, 6) == (ours.flips.num_credited, ours.flips.num_flips, ours.flips.num_agree)


def test_curves_go_by_look():
    """Accuracy starts before the first update; coverage of a window holds the iterations since the look before."""
    ours = _summary().methods[0]
    assert (0, 2) == ours.accuracy_curve.iterations
    assert (0.1, 0.6) == pytest.approx(tuple(point.mean for point in ours.accuracy_curve.points))
    assert (2,) == ours.coverage_curve.iterations
    assert 0.95 == pytest.approx(ours.coverage_curve.points[0].mean)


def test_best_scalar_is_the_best_reduction_and_never_the_reference():
    """Only reductions of the judge's intervals to points are scalar."""
    assert "mid-dr_grpo" == _summary().best_scalar.method
    lower = [_run("lb-dr_grpo", seed, value, estimator="dr_grpo") for seed, value in enumerate([0.1, 0.2, 0.3])]
    design = _summary([*_runs(), *lower], methods=["range", "mid-dr_grpo", "lb-dr_grpo"], reference="mid-dr_grpo")
    assert "lb-dr_grpo" == design.best_scalar.method
    assert "the best scalar reduction, lb-dr_grpo: +30.0 points" in markdown(_comparison(design))


def test_a_scalar_that_finished_on_easy_seeds_alone_is_not_the_best_for_it():
    """Means over unlike seeds do not rank methods: each is held against the reference on the seeds that both have."""
    easy = _run("ub-dr_grpo", 2, 0.55, estimator="dr_grpo")  # above the mean of mid-dr_grpo, and 15 points below range
    design = _summary([*_runs(), easy], methods=["range", "mid-dr_grpo", "ub-dr_grpo"])
    assert "mid-dr_grpo" == design.best_scalar.method


def test_a_reference_without_a_result_is_said_to_have_none():
    """Where the reference failed on all seeds, the finding says so and blames no other method."""
    text = markdown(_comparison(_summary(_runs()[3:])))
    assert "range has no result here" in text
    assert "no scalar reduction" not in text


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda run: run["rows"][1].update(rollouts_sha256="other"), "equal first rollouts"),
        (lambda run: run["rows"][2]["rollouts"].update(ratio=5), "equal rollouts by kind"),
        (lambda run: run.update(held_out_sha256="others"), "equal held-out prompts"),
        (lambda run: run.update(role="validation"), "must be a reported one"),
    ],
)
def test_runs_that_are_not_paired_are_refused(change, says):
    """Other first rollouts, another budget or other held-out prompts are no comparison."""
    runs = copy.deepcopy(_runs())
    change(runs[3])
    with pytest.raises(BadInputError, match=says):
        require_paired(runs)


def test_a_missing_run_is_named_and_not_counted():
    """Differences take the seeds that both have; the tables name the run without a result."""
    design = _summary(_runs()[:-1], missing=("neutral, mid-dr_grpo, seed 2",))
    assert 2 == design.methods[1].difference.num_seeds
    text = markdown(_comparison(design, failures={"neutral, mid-dr_grpo, seed 2": "a loss was not finite"}))
    assert "Without a result: neutral, mid-dr_grpo, seed 2." in text
    assert "a loss was not finite" in text


def test_no_run_at_all_is_refused():
    """A design without a result cannot be summarised."""
    with pytest.raises(BadInputError, match="must have a finished run"):
        summarise_design([], reference="range", methods=["range"], missing=("all",), confidence=0.95)


def _comparison(design, **over):
    settings = {"name": "small", "description": "", "designs": (design,), "tuning": {}, "failures": {}}
    return ComparisonSummary(**{**settings, **over}, confidence=0.95)


def test_tables_and_page_are_equal_each_time():
    """Equal runs in any order give equal tables, drawings and pages, to the byte."""
    first, second = _comparison(_summary()), _comparison(_summary(_runs()[::-1]))
    assert markdown(first) == markdown(second)
    assert plain(first) == plain(second)
    assert curves(first.designs[0]) == curves(second.designs[0])
    assert comparison_page(first) == comparison_page(second)


def _five(shift):
    ours = [_run("range", seed, 0.5 + shift + 0.01 * seed) for seed in range(5)]
    return ours + [_run("mid-dr_grpo", seed, 0.5 - 0.01 * seed, estimator="dr_grpo") for seed in range(5)]


@pytest.mark.parametrize(
    ("shift", "words"),
    [(0.2, "range beats the best"), (-0.2, "range loses to the best"), (-0.04, "not told apart from")],
)
def test_a_losing_design_is_told_as_plainly_as_a_winning_one(shift, words):
    """The finding says beats, loses, or not told apart, by the interval."""
    assert words in markdown(_comparison(_summary(_five(shift))))


def test_few_seeds_give_no_verdict():
    """Resampled intervals of fewer than five seeds are too narrow to conclude from, however large the difference."""
    runs = [run for run in _five(0.4) if run["seed"] < 4]
    assert "cannot be told, with fewer than 5 seeds, from" in markdown(_comparison(_summary(runs)))


def test_hostile_texts_stay_text():
    """Names and reasons cannot write into the page."""
    page = comparison_page(_comparison(_summary(), description="<script>x</script>", failures={"a": "<b>&"}))
    assert "<script>" not in page
    assert "&lt;b&gt;&amp;" in page


def _by_source(method, source, *, pairing, digest, policy):
    run = {**copy.deepcopy(_run(method, 0, 0.5)), "source": source, "pairing": pairing}
    run |= {"asks_judge": source == "judge_interval", "before": {"anchors": 7} if source == "anchor_contrast" else {}}
    run["rows"][1] |= {"rollouts_sha256": digest, "rollouts": {"policy": policy, "ratio": 0, "audit": 4}}
    return run


def test_sources_that_draw_alike_must_begin_alike():
    """Of runs with different sources, those of one pairing must share first rollouts; others need not."""
    judged = _by_source("range", "judge_interval", pairing="a", digest="x", policy=8)
    voted = _by_source("majority", "majority", pairing="b", digest="y", policy=12)
    require_paired([judged, voted, _by_source("entropy", "token_entropy", pairing="b", digest="y", policy=12)])
    with pytest.raises(BadInputError, match="equal first rollouts to be paired; got y for 'majority' and z"):
        require_paired([judged, voted, _by_source("entropy", "token_entropy", pairing="b", digest="z", policy=12)])


def test_one_source_without_a_judge_may_refill():
    """Two ways of one source that draw other numbers of rollouts are compared, and the difference is told."""
    runs = [
        _by_source(name, "reference_probability", pairing="a", digest="x", policy=policy)
        for name, policy in (("filtered", 16), ("whole", 12))
    ]
    design = summarise_design(runs, reference="whole", methods=["filtered", "whole"], missing=[], confidence=0.9)
    assert "these another number, for want of prompts or to refill a filtered batch: filtered +4." in legend(design)


def _sources(**over):
    runs = [
        _by_source("range", "judge_interval", pairing="a", digest="x", policy=12),
        _by_source("anchor_contrast", "anchor_contrast", pairing="b", digest="y", policy=12),
        _by_source("sft", "sft", pairing="c", digest="z", policy=3),
    ]
    names = ["range", "anchor_contrast", "sft", "verifree"]
    return summarise_design(runs, reference="range", methods=names, missing=[], confidence=0.9, **over)


def test_unequal_rollouts_of_sources_are_told():
    """First iterations of 12 + 4 rollouts are equal, 3 + 4 are nine fewer; the second draws 16 everywhere."""
    design = _sources()
    assert [32, 32, 23] == [sum(item.rollouts.values()) for item in design.methods]
    assert "range drew 32, and these another number, for want of prompts or to refill" in legend(design)
    assert "a filtered batch: sft -9." in legend(design)


def test_a_source_that_failed_is_a_row_with_its_reason():
    """The row stands in the table with dashes for numbers; a bar or a line break in the reason breaks no table."""
    failures = {"neutral, verifree, seed 0": "no reasoning |\nat all", "neutral, sft, seed 9": "other"}
    made = rows(_sources(failures=failures))
    assert {len(header(_sources()))} == {len(row) for row in made}
    assert ["verifree", "failed: no reasoning / at all"] == [made[-1][0], made[-1][-1]]
    assert ["0", "7 (7 anchors)", "0"] == [row[-2] for row in made[:3]]
    assert "failed: it was not run" == rows(_sources())[-1][-1]


def test_the_finding_of_sources_names_the_highest_and_what_one_seed_can_tell():
    """Three sources at the same accuracy: the first is named, the ties are told, and nothing is claimed."""
    said = finding(_sources(), 0.9)
    assert "range has the highest accuracy of 3 sources, 50.0 %, over 1 seed, and 2 others reach it" in said
    assert "fewer than 5 seeds tell no sources apart" in said
