"""The training benchmark's own arithmetic: ratios, agreement, and that both sides do the same work."""

import pytest

from benchmarks.training.run import CONTENDERS, Line, agrees, table
from benchmarks.training.workload import WORKLOADS, prompt_texts, rewards


def line(side, step, peak):
    """Return one contender's numbers of two rounds."""
    return Line(
        workload="gpt2",
        side=side,
        variant="v",
        step_seconds=(step, 3 * step),
        cpu_seconds=(step,) * 2,
        sample_seconds=(1.0,) * 2,
        tokens=(400,) * 2,
        peak_mib=(peak,) * 2,
        start_mib=(1.0,) * 2,
        load=(0.5, 2.0),
    )


def test_each_of_trls_is_told_in_times_of_rangelines_before_it():
    """Medians of 4 and 16 seconds and 100 and 250 MiB are 4.0, 4.0 and 2.5 times; the load is told."""
    rows = table(WORKLOADS["gpt2"], [line("Rangeline", 2.0, 100.0), line("TRL", 8.0, 250.0)])
    assert "| 16.00 | 8.00, 24.00 | 1.00 | 8.00 | 25 | 250 | 4.0 | 4.0 | 2.5 |" in rows[3]
    assert "0.5 to 2.0" in rows[-1]


def test_a_round_begins_with_rangeline():
    """What TRL's times are divided by is measured before them."""
    assert "rangeline_side" == CONTENDERS[0][0]


@pytest.mark.parametrize(("norm", "expected"), [(1.00005, True), (1.001, False)])
def test_sides_agree_within_the_tolerance(norm, expected):
    """A gradient norm may differ by 1e-4 of itself."""
    checked = {"trl_loss": 0.0, "rangeline_loss": 0.0, "trl_grad_norm": 1.0, "rangeline_grad_norm": norm}
    assert expected == agrees(checked)


def test_prompts_of_a_workload_are_distinct_and_always_the_same():
    """Groups are told apart by their prompts, and both sides ask the same ones."""
    for workload in WORKLOADS.values():
        texts = prompt_texts(workload)
        assert workload.num_prompts == len(set(texts))
        assert texts == prompt_texts(workload)


def test_the_reward_is_the_share_of_even_tokens():
    """Hand-worked: two of three, and none of one."""
    assert [2 / 3, 0.0] == rewards([(2, 4, 5), (1,)])
