"""The reward-quality stage on the tiny workspace: same rollouts for all sources, numbers by suite, refusals."""

import json

import pytest

from rangeline.errors import ConfigError
from rangeline.stages.progress import silent
from rangeline.stages.reward_quality import measure_quality
from rangeline.stages.tables import read_table


def test_every_scoring_source_is_measured_on_the_same_rollouts(copy):
    """The verifier ranks perfectly, the others have their AUC or none; rewards lie beside the truth in one table."""
    names = ("verifier", "judge_interval", "reference_probability", "verifree", "majority", "token_entropy")
    result = measure_quality(copy.workspace, copy.config, copy.workspace.warmup, names, silent)
    assert names == tuple(row["source"] for row in result.rows)
    by_source = {row["source"]: row for row in result.rows}
    assert by_source["verifier"]["auc"] in (1.0, None)
    assert {"reasoning_gym"} == {row["suite"] for row in result.rows}
    table = read_table(result.folder / "rewards.parquet")
    assert {*names, "truth", "length", "entropy"} <= set(table.column_names)
    assert list(result.rows) == json.loads((result.folder / "quality.json").read_text())["rows"]


@pytest.mark.parametrize(
    ("names", "message"),
    [(("sft",), "got sft"), (("trapo",), "got trapo"), ((), "got none"), (("nope",), "got 'nope'")],
)
def test_sources_without_a_score_are_refused(copy, names, message):
    """What learns texts or only selects prompts has no quality of its own."""
    with pytest.raises(ConfigError, match=message):
        measure_quality(copy.workspace, copy.config, copy.workspace.warmup, names, silent)
