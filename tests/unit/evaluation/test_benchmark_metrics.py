import math

import numpy as np
import pytest

from rangeline.errors import BadInputError
from rangeline.evaluation.benchmark_metrics import ScoredCompletion, overlap_metrics, reading_shares, verdict_metrics
from rangeline.evaluation.text_overlap import bleu_counts


def row(prompt_id, verdict, answer="x", *, status="found", reason="", finish="stop"):
    """Return one completion."""
    return ScoredCompletion(
        prompt_id=prompt_id, verdict=verdict, answer=answer, status=status, reason=reason, finish=finish
    )


ROWS = [
    row("p", 1.0, "7"),
    row("p", 0.0, "8"),
    row("p", 0.0, "9"),
    row("p", 0.0, None, status="absent", reason="no answer found"),
    row("q", 1.0, "7"),
    row("q", None, None, status="absent", reason="cut off", finish="length"),
    row("q", None, None, status="ambiguous", reason="ambiguous"),
    row("q", 1.0, "7", finish="length"),
]
"""Problem p has four verdicts, one right; problem q has two, both right."""


def values(rows, **over):
    """Return the values by measure."""
    asked = {"samples": 4, "ks": (1, 2, 4), "confidence": 0.9, "seed": 0, **over}
    return {name: item["value"] for name, item in verdict_metrics(rows, **asked)["estimates"].items()}


def test_every_measure_is_worked_by_hand():
    """Missing verdicts are in no mean: q counts with its two right completions, and not at all for k = 4."""
    found = values(ROWS)
    assert found["avg@4"] == (1 / 4 + 1) / 2
    assert found["pass@1"] == found["avg@4"]
    assert found["pass@2"] == (1 / 2 + 1) / 2
    assert found["pass@4"] == 1.0  # p alone
    # Two of p: 7 against 8 or 9 ties, 7 with silence wins, all else is wrong: (1/2 + 1/2 + 1) / 6.
    assert pytest.approx((2 / 6 + 1) / 2) == found["cons@2"]
    assert pytest.approx((0 + 1) / 2) == found["g-pass@2(1)"]
    assert found["g-pass@2(0.5)"] == found["pass@2"]
    assert pytest.approx(1 / 3) == found["cons@4"]  # three answers with a vote each


def test_the_floor_counts_every_missing_verdict_as_wrong():
    """Published numbers count what was cut off as wrong; that value stands beside, under its own name."""
    metrics = verdict_metrics(ROWS, samples=4, ks=(1, 4), confidence=0.9, seed=0)
    assert metrics["floor"]["avg@4"] == (1 / 4 + 2 / 4) / 2
    assert metrics["floor"]["pass@4"] == 1.0
    assert metrics["estimates"]["pass@4"]["num_prompts"] == 1


def test_shares_are_of_all_completions():
    """Two of eight were cut off, two hold no answer, one several, and two have no verdict, each with its reason."""
    shares = reading_shares(ROWS)
    assert (2 / 8, 2 / 8, 1 / 8, 2 / 8) == (
        shares["truncated_share"],
        shares["absent_share"],
        shares["ambiguous_share"],
        shares["missing_share"],
    )
    assert {"ambiguous": 1 / 8, "cut off": 1 / 8} == shares["missing_reasons"]
    assert (8, 2) == (shares["num_completions"], shares["num_problems"])


def test_nothing_but_missing_gives_no_value():
    """Without one verdict there is no accuracy, and the floor says what counting them wrong would."""
    metrics = verdict_metrics([row("p", None, None, reason="time-out")] * 2, samples=2, ks=(1,), confidence=0.9, seed=0)
    assert metrics["estimates"]["avg@2"]["value"] is None
    assert metrics["floor"]["avg@2"] == 0.0
    assert metrics["missing_reasons"] == {"time-out": 1.0}


def test_a_degree_is_no_verdict():
    """A reward between right and wrong cannot be counted."""
    with pytest.raises(BadInputError, match=r"'verdict' must be 0 or 1; got 0.5 \(prompt 'p'\)"):
        values([row("p", 0.5)])


def test_no_completion_is_refused():
    """An evaluation of nothing has no shares."""
    with pytest.raises(BadInputError, match="'rows' must hold at least one completion; got 0"):
        reading_shares([])


def test_overlap_means_go_over_problems_and_leave_missing_out():
    """Two texts of p average first; a text that was not sampled is in no mean, and BLEU pools the rest."""
    rows = [row("p", 0.5, "a b"), row("p", 0.5, "a"), row("q", None, None, status="not sampled", reason="long")]
    nan = math.nan
    scores = {name: np.array([1.0, 0.5, nan]) for name in ("rouge1", "rouge2")} | {"rougeL": np.array([0.4, 0.1, nan])}
    counts = np.array([bleu_counts("a b c d", ["a b c d"]), bleu_counts("a", ["a b"]), np.full(10, nan)])
    metrics = overlap_metrics(rows, scores, counts, unavailable={"bert_score": "no model"}, confidence=0.9, seed=0)
    found = {name: item["value"] for name, item in metrics["estimates"].items()}
    assert (0.75, 0.25) == (found["rouge1"], found["rougeL"])
    assert pytest.approx((2 * 0.75 + 0.25) / 3) == found["rouge_mean"]
    assert found["bleu"] > 0
    assert "bert_score" not in found
    assert metrics["unavailable"] == {"bert_score": "no model"}
    assert {"long": 1 / 3} == metrics["missing_reasons"]
