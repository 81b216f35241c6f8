"""Flow `benchmark`: policies on named benchmarks or on the columns of a paper's table, compared problem by problem."""

from typing import Annotated, Any, Literal

from prefect import flow
from pydantic import Field

from flows.common import DataRequest
from rangeline.config import PipelineConfig
from tasks.evaluation import benchmark_policy, compare_on_benchmarks, score_table
from tasks.lineage import read_settings_of
from tasks.records import record_benchmarks

Count = Annotated[int, Field(ge=1)]


class BenchmarkRequest(DataRequest):
    """Who is asked what; empty fields are the preset's, or the defaults of the command."""

    policies: tuple[str, ...] = Field(
        ("warmup",),
        min_length=1,
        description="'warmup', a run, a checkpoint or model folder, package:<name> or a Hub name",
    )
    benchmarks: tuple[str, ...] = Field((), description="Names such as gsm8k; of a preset, those that are run")
    preset: Literal["range-grpo", "rlpr", "rrpo"] | None = Field(None, description="A paper's table")
    samples: Count | None = Field(None, description="n, completions a problem; 4 without a preset")
    pass_at: tuple[Count, ...] | None = Field(None, description="k of pass@k; empty: powers of two up to n")
    temperature: Annotated[float, Field(ge=0)] | None = Field(None, description="0 is greedy; 1 without a preset")
    max_tokens: Count | None = Field(None, description="Completion cap; 512 without a preset")
    max_problems: Count | None = Field(None, description="Only the first problems of each benchmark")
    prompts_per_shard: Count = Field(8, description="Problems that are sampled and saved together")
    bert_model: str = Field("roberta-large", description="Model of BERTScore: a folder, or a Hub name already on disk")


@flow(name="benchmark", description=__doc__)
def benchmark(request: BenchmarkRequest = BenchmarkRequest(benchmarks=("gsm8k",))) -> dict[str, Any]:
    """Run each policy; return results by policy, the table's file, and the paired change from the first to the last."""
    config: PipelineConfig = read_settings_of(request.workspace)
    asked = {
        **request.model_dump(exclude={"workspace", "policies"}),
        "seed": config.seed,
        "confidence": config.evaluate.confidence,
    }
    policies = tuple(dict.fromkeys(request.policies))
    results = [benchmark_policy(request.workspace, config, name, asked) for name in policies]
    table = score_table(request.workspace, results, asked)
    for result in results:
        record_benchmarks(request.workspace, result, asked, table)
    paired = compare_on_benchmarks(results[0], results[-1], asked) if len(results) > 1 else {}
    return {"results": results, "table": table, "paired": paired}
