"""Verdicts of lm-evaluation-harness on our completions: its own filters and metric, set up by its own task files.

Both its GSM8K and its zero-shot MMLU task have a filter `flexible-extract`; that is the one asked here.
"""

from functools import cache
from importlib.util import find_spec
from pathlib import Path

import yaml
from lm_eval.api.metrics import exact_match_hf_evaluate
from lm_eval.filters.extraction import MultiChoiceRegexFilter, RegexFilter

from rangeline.prompts.benchmarks import benchmark_rows, read_registry
from rangeline.prompts.sources import read_records

NOTHING = "[invalid]"
TASKS = {
    "gsm8k": ("tasks/gsm8k/gsm8k.yaml", RegexFilter),
    "mmlu": ("tasks/mmlu/flan_cot_zeroshot/_mmlu_flan_cot_zeroshot_template_yaml", MultiChoiceRegexFilter),
}


@cache
def questions(name):
    """Return the packaged questions of a benchmark by prompt id."""
    benchmark = read_registry()[f"{name}_packaged"]
    return {row.prompt_id: row for row in benchmark_rows(benchmark, read_records(benchmark)).rows}


@cache
def _task(name):
    path, kind = TASKS[name]
    task = yaml.safe_load((Path(find_spec("lm_eval").origin).parent / path).read_text())
    (chain,) = [item["filter"] for item in task["filter_list"] if item["name"] == "flexible-extract"]
    settings = {key: value for key, value in chain[0].items() if key != "function"}
    (metric,) = task["metric_list"]
    names = ("ignore_case", "ignore_punctuation", "regexes_to_ignore")
    return kind(**settings), {key: metric[key] for key in names if key in metric}


def peer_verdicts(name, rows, completions):
    """Return what the peer extracts from each completion and whether it is right; None twice where it finds nothing.

    All are asked at once: each call of its filter for choices first reads the whole of Unicode.
    """
    reader, settings = _task(name)
    documents = [{"choices": list(row.metadata.get("options", []))} for row in rows]
    answers = [answer for (answer,) in reader.apply([[text] for text in completions], documents)]
    targets = [f"({row.reference})" if name == "mmlu" else f"#### {row.reference}" for row in rows]
    found = []
    for answer, target in zip(answers, targets, strict=True):
        score = exact_match_hf_evaluate(predictions=[answer], references=[target], **settings)["exact_match"]
        found.append((None, None) if answer == NOTHING else (answer, float(score)))
    return found
