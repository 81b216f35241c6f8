"""Rows of the configured benchmarks, and the findings of ingest with what was done about them."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from rangeline.config import BenchmarkConfig, PipelineConfig
from rangeline.errors import ConfigError
from rangeline.prompts.benchmarks import Benchmark, benchmark_rows, make_benchmark, read_registry
from rangeline.prompts.findings import Finding, duplicate_findings, handle, length_findings, reference_findings
from rangeline.prompts.sources import read_records
from rangeline.records import PromptRow
from rangeline.stages.workspace import Workspace, model_cache
from rangeline.suites.competition_math import CompetitionMath
from rangeline.suites.free_form import FreeForm
from rangeline.suites.registry import get_suite


def registry_of(workspace: Workspace, config: PipelineConfig) -> dict[str, Benchmark]:
    """Return all known benchmarks: the package's, and those of `data.registry` over them.

    Raises
    ------
    ConfigError
        If the file cannot be read, or an entry is unusable.
    """
    known = read_registry()
    if config.data.registry is None:
        return known
    path = workspace.root / config.data.registry
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        msg = f"'data.registry' must be a readable text file; got '{path}' ({error}). Correct the setting."
        raise ConfigError(msg) from error
    return known | read_registry(text, source=config.data.registry)


def _benchmark(asked: BenchmarkConfig, known: dict[str, Benchmark]) -> Benchmark:
    if asked.name not in known:
        msg = f"'data.benchmarks' must be among {', '.join(sorted(known))}; got '{asked.name}'. Correct its name."
        raise ConfigError(msg)
    fields = asdict(known[asked.name])
    return make_benchmark(fields.pop("name"), fields | asked.override)


def _unlabelled(row: PromptRow) -> PromptRow:
    hidden = {"references"}
    return replace(row, reference=None, metadata={k: v for k, v in row.metadata.items() if k not in hidden})


def read_benchmarks(workspace: Workspace, config: PipelineConfig) -> tuple[list[PromptRow], list[dict[str, Any]]]:
    """Return the rows of the configured benchmarks, and a summary of each.

    Raises
    ------
    ConfigError
        If a benchmark is unknown, its source is not pinned or not there, or it is unlabelled and not for training.
    DataContractError
        If a source cannot be read or gives no row.
    """
    rows: list[PromptRow] = []
    summaries: list[dict[str, Any]] = []
    known = registry_of(workspace, config) if config.data.benchmarks else {}
    for asked in config.data.benchmarks:
        benchmark = _benchmark(asked, known)
        if not asked.labelled and asked.share != "train":
            msg = f"'share' must be train where 'labelled' is false; got '{asked.share}' (benchmark '{asked.name}')."
            raise ConfigError(msg)
        records = read_records(benchmark, root=workspace.root)
        given = benchmark_rows(benchmark, records, share=asked.share, domain=asked.domain)
        taken = given.rows[: asked.limit]
        rows += taken if asked.labelled else map(_unlabelled, taken)
        summaries.append(
            {
                "name": benchmark.name,
                "source": benchmark.source,
                "revision": benchmark.revision,
                "licence": benchmark.licence,
                "rows": len(taken),
                "repeats": given.repeats,
                "unusable": [{"row": number, "reason": reason} for number, reason in given.unusable],
            }
        )
    return rows, summaries


def _reads(row: PromptRow) -> bool:
    suite = get_suite(row.suite)
    return suite.reads_reference(row) if isinstance(suite, CompetitionMath | FreeForm) else True


def apply_findings(rows: Sequence[PromptRow], config: PipelineConfig) -> tuple[tuple[PromptRow, ...], list[Finding]]:
    """Find duplicates, unreadable references and long prompts, and handle each kind as configured.

    Raises
    ------
    DataContractError
        If a kind that was found is refused, or a prompt id occurs twice.
    ModelLoadError
        If prompts are to be measured and the policy's tokenizer cannot be loaded.
    """
    data = config.data
    repeats = duplicate_findings(rows)
    kept = handle(rows, repeats, data.duplicates, setting="data.duplicates")
    unreadable = reference_findings(kept, _reads)
    kept = handle(kept, unreadable, data.unreadable_references, setting="data.unreadable_references")
    long: tuple[Finding, ...] = ()
    if data.max_prompt_tokens is not None:
        # Imported here because it loads tensors, and only measured prompts need a tokenizer.
        from rangeline.rollout.pretrained import encode_prompt, load_pretrained

        trusted = config.policy.trust_remote_code
        tokenizer = load_pretrained(config.policy.model, cache_dir=model_cache(), trust_remote_code=trusted).tokenizer

        def num_tokens(row: PromptRow) -> int:
            return len(encode_prompt(tokenizer, get_suite(row.suite).render(row)))

        long = length_findings(kept, num_tokens, data.max_prompt_tokens)
        kept = handle(kept, long, data.long_prompts, setting="data.long_prompts")
    return kept, [*repeats, *unreadable, *long]
