import pytest

from rangeline.errors import ConfigError
from rangeline.evaluation.presets import PRESETS, VERDICT_MEASURES, get_preset


@pytest.mark.parametrize("preset", PRESETS.values(), ids=lambda item: item.name)
def test_a_table_is_complete_in_itself(preset):
    """Every column has its benchmark, enough completions are sampled for it, and averages name columns that exist."""
    plans = {plan.name: plan for plan in preset.benchmarks}
    titles = [column.title for column in preset.columns]
    assert len(set(titles)) == len(titles)
    assert set(plans) == {column.benchmark for column in preset.columns}
    for column in preset.columns:
        assert plans[column.benchmark].samples >= column.k
        if column.measure == "avg":
            assert plans[column.benchmark].samples == column.k
        assert column.measure in (*VERDICT_MEASURES, "rouge1", "rouge2", "rougeL", "rouge_mean", "bleu", "bert_score")
    for average in preset.averages:
        assert set(average.columns) <= set(titles)


def test_columns_are_those_of_the_papers():
    """The measures and averages that the papers report, column by column."""
    keys = {name: [f"{item.benchmark} {item.key}" for item in preset.columns] for name, preset in PRESETS.items()}
    assert keys == {
        "range-grpo": [
            "aime_2024 avg@32",
            "aime_2025 avg@32",
            "amc avg@32",
            "math_500 pass@1",
            "minerva pass@1",
            "olympiad_bench pass@1",
            "arc_challenge pass@1",
            "gpqa_diamond pass@1",
            "mmlu_pro pass@1",
        ],
        "rlpr": [
            "mmlu_pro avg@2",
            "gpqa_diamond avg@4",
            "theoremqa avg@2",
            "webinstruct_verified avg@2",
            "math_500 avg@2",
            "minerva avg@2",
            "aime_2024 avg@16",
        ],
        "rrpo": [
            *(f"gsm8k pass@{k}" for k in (1, 2, 4, 8)),
            *(f"eli5 {name}" for name in ("rouge1", "rouge2", "rougeL", "rouge_mean")),
            *(f"samsum {name}" for name in ("rouge1", "rouge2", "rougeL", "rouge_mean", "bleu", "bert_score")),
        ],
    }
    sizes = {name: {item.title: len(item.columns) for item in preset.averages} for name, preset in PRESETS.items()}
    assert sizes == {
        "range-grpo": {"ID average": 6, "OOD average": 3},
        "rlpr": {"General": 4, "All": 7},
        "rrpo": {},
    }


def test_an_unknown_table_is_refused_with_the_nearest_name():
    """A slip of the pen is answered by the name that was meant."""
    with pytest.raises(ConfigError, match=r"one of range-grpo, rlpr, rrpo; got 'rlpr1'\. Did you mean 'rlpr'\?"):
        get_preset("rlpr1")
