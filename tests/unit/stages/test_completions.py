"""What an iteration says of its completions: numbers by hand, and a table and a page that repeat bit for bit."""

import json
import math

import numpy as np
import pytest

from rangeline.lineage import MANIFEST_NAME, digest_file, read_manifest, write_json
from rangeline.records import PromptRow, RewardIntervals, RolloutSet
from rangeline.stages.completions import PAGE_NAME, TABLE_NAME, completion_numbers, write_completions
from rangeline.stages.data import read_pool
from rangeline.stages.tables import read_table, write_intervals, write_rollouts, write_table

IDS = ("a", "a", "b", "b", "c")


def written(folder, *, lower=(0.0, 1.0, 0.5, 0.5, 0.0), missing=(), cut=(1,), kept=None, source=None):
    """Write the files of an iteration of five rollouts of three prompts."""
    folder.mkdir(exist_ok=True)
    lengths = (1, 4, 2, 3, 0)
    rollouts = RolloutSet(
        prompt_id_N=IDS,
        sample_N=(0, 1, 0, 1, 0),
        completion_N=tuple(f"<b>{i}</b>" for i in range(5)),
        prompt_token_ids_N=((1, 2),) * 5,
        token_ids_N=tuple((7,) * n for n in lengths),
        sampled_logprobs_N=tuple((-1.0,) * n for n in lengths),
        finish_reason_N=tuple("length" if i in cut else "stop" for i in range(5)),
        policy_version=0,
    )
    write_rollouts(folder / "policy_rollouts.parquet", rollouts)
    intervals = RewardIntervals(
        prompt_id_N=IDS,
        lower_N=np.array(lower),
        upper_N=np.array(lower),
        unbounded_N=np.zeros(5, dtype=bool),
        missing_N=np.array([i in missing for i in range(5)]),
        support=(0.0, 1.0),
        source="s",
    )
    columns = {"kept": kept or [True] * 5, "source": source or ["s"] * 5}
    write_intervals(folder / "policy_intervals.parquet", intervals, **columns)
    credit = {"prompt_id": list(IDS), "advantage": np.arange(5.0), "midpoint": np.arange(5.0)}
    write_table(folder / "advantages.parquet", credit)
    return folder


def numbers(folder, **changes):
    """Return the numbers of those files."""
    return completion_numbers(written(folder / "i", **changes), before=folder / "none")


def test_lengths_are_those_of_the_completions(tmp_path):
    """Mean, least and largest length count every completion; terminated ones leave out what was cut off."""
    found = numbers(tmp_path)
    assert (2.0, 0.0, 4.0) == tuple(found[f"completion/{name}_length"] for name in ("mean", "min", "max"))
    terminated = tuple(found[f"completion/{name}_terminated_length"] for name in ("mean", "min", "max"))
    assert (1.5, 0.0, 3.0) == terminated
    assert 0.2 == found["completion/truncated_share"]


def test_lengths_of_nothing_are_unknown(tmp_path):
    """Where every completion was cut off, the length of terminated ones is None, never 0."""
    found = numbers(tmp_path, cut=range(5))
    assert [None] * 3 == [found[f"completion/{name}_terminated_length"] for name in ("mean", "min", "max")]


def test_tokens_add_up_over_iterations(tmp_path):
    """Tokens are prompt and completion tokens; the total goes on from the iteration before."""
    folder = written(tmp_path / "i")
    (tmp_path / "before").mkdir()
    write_json(tmp_path / "before" / "metrics.json", {"completion/total_tokens": 100})
    found = completion_numbers(folder, before=tmp_path / "before")
    assert (20, 120) == (found["completion/num_tokens"], found["completion/total_tokens"])


def test_missing_rewards_are_in_no_mean(tmp_path):
    """Mean and spread are over rewards that are there."""
    found = numbers(tmp_path, missing=(0, 4))
    assert (2 / 3, math.sqrt(1 / 18)) == pytest.approx((found["reward/mean"], found["reward/std"]))
    nothing = numbers(tmp_path, missing=range(5))
    assert [None] * 3 == [nothing[f"reward/{name}"] for name in ("mean", "std", "zero_spread_share")]


def test_groups_without_spread_are_counted(tmp_path):
    """Of two groups with two rewards one has no spread; a single reward is no group."""
    assert 0.5 == numbers(tmp_path)["reward/zero_spread_share"]
    assert 1.0 == numbers(tmp_path, missing=(0,))["reward/zero_spread_share"]


def test_raw_rewards_stand_beside_the_kept_ones(tmp_path):
    """What the filter dropped is in the raw numbers alone."""
    found = numbers(tmp_path, kept=[True, True, False, False, False])
    assert (0.5, 0.4) == pytest.approx((found["reward/mean"], found["reward/raw_mean"]))
    assert (0.0, 0.5) == (found["reward/zero_spread_share"], found["reward/raw_zero_spread_share"])


def test_sources_are_told_apart(tmp_path):
    """Where two sources score, each has its mean and spread; where one does, nothing is said twice."""
    found = numbers(tmp_path, source=["x", "x", "y", "y", "y"])
    assert (0.5, 0.5) == (found["reward/x/mean"], found["reward/x/std"])
    assert 1 / 3 == pytest.approx(found["reward/y/mean"])
    assert not [name for name in numbers(tmp_path) if "/s/" in name]


def test_private_texts_are_in_neither_file(tmp_path):
    """The prompt and the completions of a private problem are null in the table and absent from the page."""
    folder = written(tmp_path / "i", missing=(2,))
    rows = {name: PromptRow(prompt_id=name, prompt=f"ask {name}", suite="s") for name in "abc"}
    rows["b"] = PromptRow(prompt_id="b", prompt="ask b", suite="s", metadata={"private": True})
    write_completions(folder, rows, title="t")
    table = read_table(folder / TABLE_NAME).to_pydict()
    assert ["ask a", "ask a", None, None, "ask c"] == table["prompt"]
    assert ["<b>0</b>", "<b>1</b>", None, None, "<b>4</b>"] == table["completion"]
    assert [0.0, 1.0, None, 0.5, 0.0] == table["lower"]
    page = (folder / PAGE_NAME).read_text(encoding="utf-8")
    assert "&lt;b&gt;0&lt;/b&gt;" in page
    assert "ask b" not in page


def test_iteration_keeps_its_completions(trained):
    """An iteration's manifest holds table, page and steps; the table has a row a rollout and repeats bit for bit."""
    for number in (1, 2):
        folder = trained.run.iteration(number)
        kept = {ref.path.rsplit("/", 1)[-1] for ref in read_manifest(folder / MANIFEST_NAME).outputs}
        assert {TABLE_NAME, PAGE_NAME, "steps.json"} <= kept
        before = [digest_file(folder / name) for name in (TABLE_NAME, PAGE_NAME)]
        rows = {row.prompt_id: row for row in read_pool(trained.workspace, "policy")}
        write_completions(folder, rows, title=f"{trained.run.name}, iteration {number}")
        assert before == [digest_file(folder / name) for name in (TABLE_NAME, PAGE_NAME)]
        assert 32 == len(read_table(folder / TABLE_NAME))


def test_iteration_tells_everything_of_its_update(trained):
    """Metrics hold raw and corrected numbers of every kind, all finite or null; steps are counted over the run."""
    counted = []
    for number in (1, 2):
        metrics = json.loads((trained.run.iteration(number) / "metrics.json").read_text())
        for name in ("mismatch_mean", "mismatch_mean_corrected", "grad_norm", "grad_norm_clipped", "learning_rate"):
            assert math.isfinite(metrics[f"policy/{name}"])
        assert metrics["policy/mismatch_max"] < 1e-4
        assert all(value is None or math.isfinite(value) for value in metrics.values() if not isinstance(value, str))
        counted += [row["step"] for row in json.loads((trained.run.iteration(number) / "steps.json").read_text())]
    assert [1, 2] == counted
