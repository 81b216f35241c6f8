"""The measurement of anchor contrast against verified correctness counts pairs right, and runs on a tiny model."""

import json

import numpy as np
import pytest

from benchmarks.rrpo.run import auc_of, main, pair_shares, render

NAN = float("nan")


def test_pairs_are_counted_inside_prompts():
    """Prompt p: right .5 against wrong .1 and .5 is 1.5 of 2; q has no wrong row; what is missing makes no pair."""
    score = np.array([0.5, 0.1, 0.5, 9.0, 7.0, NAN, 0.0])
    truth = np.array([1.0, 0.0, 0.0, 1.0, 1.0, 0.0, NAN])
    assert {"p": (1.5, 2)} == pair_shares(score, truth, tuple("pppqqpp"))


def test_auc_weighs_pairs_and_not_prompts():
    """One of 1 and 1 of 3 pairs: 2 of 4."""
    score, truth = np.array([1.0, 0, 1, 2, 0, 2]), np.array([1.0, 0, 1, 0, 0, 0])
    found = auc_of(score, truth, tuple("ppqqqq"), seed=0)
    assert (0.5, 2, 4) == (found["auc"], found["prompts"], found["pairs"])
    assert found["lower"] <= 0.5 <= found["upper"]


def test_without_a_pair_there_is_no_auc():
    """Where no prompt has both right and wrong rollouts nothing is measured."""
    assert auc_of(np.array([1.0, 2.0]), np.array([1.0, 1.0]), ("p", "p"), seed=0)["auc"] is None


def test_benchmark_runs_on_a_tiny_workspace(copy, tmp_path, capsys):
    """Both ways to lead anchors are measured on verified rollouts, the workspace is left as it was, verdict first."""
    before = (copy.workspace.anchors / "index.parquet").read_bytes()
    assert 0 == main(["--workspace", str(copy.workspace.root), "--prompts", "16", "--out", str(tmp_path / "out")])
    result = json.loads((tmp_path / "out" / "rrpo.json").read_text())
    assert ["with reference", "without reference"] == list(result["conditions"])
    assert 64 == result["rollouts"]
    assert {"trained head", "untrained head"} < set(result["conditions"]["with reference"]["auc"])
    assert capsys.readouterr().out == render(result)
    assert before == (copy.workspace.anchors / "index.parquet").read_bytes()


@pytest.mark.parametrize(("auc", "word"), [(0.61, "met"), (0.6, "NOT met"), (None, "NOT met")])
def test_verdict_follows_the_number(auc, word):
    """The share wanted is exceeded, or it is said that it is not."""
    numbers = {"auc": auc, "lower": 0.5, "upper": 0.7, "prompts": 2, "pairs": 4, "pooled_auc": 0.5}
    head = {"anchor_auc": 0.5, "held_out_by_epoch": [0.7], "best_epoch": 0}
    right = {"query": 0.4, "positive": None, "negative": 0.1}
    found = {"auc": {"trained head": numbers}, "head": head, "right_share": right}
    assert f"conditions x: AUC > 0.6 {word}" == render({"conditions": {"x": found}}).splitlines()[0]
