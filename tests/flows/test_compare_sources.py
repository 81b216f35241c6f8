"""A comparison of reward sources in miniature, by their names alone: one seed, one iteration, one table."""

import json

import pytest

_SOURCES = (
    *("judge_interval", "majority", "verifier", "trapo", "anchor_contrast"),
    *("reference_probability", "sft", "pseudo_sft"),
)
_OVER = ("train.max_silent_iterations=2", "evaluate.max_prompts=8", "train.prompts_per_iteration=2")


@pytest.fixture(scope="module")
def compared(tiny_workspace, prefect_server, tmp_path_factory):
    """Compare sources through the flow; give their results by name, and the rows of the table by name."""
    from flows.compare_runs import CompareRequest, compare

    root = tiny_workspace(tmp_path_factory.mktemp("sources") / "work")
    said = compare(
        CompareRequest(workspace=str(root), rewards=", ".join(_SOURCES), iterations=1, processes=1, settings=_OVER)
    )
    runs = [json.loads(path.read_text()) for path in root.glob("comparisons/rewards-*/*/*/runs/*/result.json")]
    table = said["page"].with_name("table.md").read_text()
    lines = [line.strip("|").split(" | ") for line in table.splitlines() if line.startswith("| ")]
    return {run["method"]: run for run in runs}, {line[0].strip(): line for line in lines}, table


@pytest.mark.slow
def test_every_source_has_a_row(compared):
    """Sources with a judge, with anchors, without either and supervised ones finish; one with nothing to reward fails.

    Its row says why, and what to do; the others stand.
    """
    runs, rows, _ = compared
    assert set(_SOURCES) - {"reference_probability"} == set(runs)
    assert {*_SOURCES, "method"} == set(rows)
    assert "answered with reasoning" in rows["reference_probability"][-1]
    assert "--config configs/reasoning.yaml" in rows["reference_probability"][-1]


@pytest.mark.slow
def test_budgets_are_equal_and_auxiliary_rollouts_counted(compared):
    """Eight prompts of four rollouts: ratio and labelled prompts are counted, a greedy sample is one rollout.

    Sources that need references train on the near sums, of which the audit pool holds four prompts; the warm-up pool
    has 17 prompts, fewer than the 32 that sft may draw.
    """
    runs, rows, table = compared
    drawn = {name: run["rows"][1]["rollouts"] for name, run in runs.items()}
    assert {"policy": 8, "ratio": 24, "audit": 48} == drawn["judge_interval"]
    assert [{"policy": 32, "ratio": 0, "audit": 48}] * 3 == [
        drawn[name] for name in ("majority", "trapo", "anchor_contrast")
    ]
    assert [{"policy": 32, "ratio": 0, "audit": 16}, {"policy": 17, "ratio": 0, "audit": 16}] == [
        drawn[name] for name in ("verifier", "sft")
    ]
    assert "judge_interval drew 80, and these another number" in table
    assert "80 (48 audit, 8 policy, 24 ratio)" in rows["judge_interval"]


@pytest.mark.slow
def test_rollouts_made_before_a_run_are_counted_apart(compared):
    """Calibration counts for the judge's source, anchors for RRPO's; nothing for a vote."""
    runs, _, _ = compared
    assert {"judge_interval": ["calibration"], "anchor_contrast": ["anchors"], "majority": []} == {
        name: list(runs[name]["before"]) for name in ("judge_interval", "anchor_contrast", "majority")
    }
    assert runs["anchor_contrast"]["before"]["anchors"] > 100


@pytest.mark.slow
def test_what_was_not_measured_is_absent(compared):
    """Coverage without a judge and the size of advantages where texts are learned are None, never 0."""
    runs, rows, _ = compared
    voted = runs["majority"]["rows"][1]
    assert [None] * 4 == list(voted["audit"].values())
    assert (None, None) == (voted["ess_share"], voted["policy"]["mean_width"])
    assert runs["judge_interval"]["rows"][1]["audit"]["num_judged"] > 0
    assert [None, None] == [runs[name]["rows"][1]["rms"] for name in ("sft", "pseudo_sft")]
    assert "not measured" in rows["majority"]
