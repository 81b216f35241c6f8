"""Read completions by their suites: answers, verdicts and overlaps, row for row, with no model but BERTScore's.

A completion that nobody could read has no verdict and a reason; it is never wrong. A complete one without any answer
is not right: its policy was asked and said nothing. Scoring the same completions again
gives the same columns, unless a suite's checker changed.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from rangeline.errors import BadInputError
from rangeline.evaluation.benchmark_metrics import ScoredCompletion, overlap_metrics, verdict_metrics
from rangeline.evaluation.text_overlap import bleu_counts, extract_summary, rouge_f1
from rangeline.prompts.ingest import check_references
from rangeline.records import PromptRow
from rangeline.stages.bert_overlap import bert_f1, bert_model_at_hand
from rangeline.suites.base import training_reward
from rangeline.suites.final_text import visible_text
from rangeline.suites.open_ended import references_of
from rangeline.suites.registry import get_suite

OVERLAP_SUITE = "open_ended"
"""Suite whose completions are compared with references, not judged right or wrong."""
NOT_SAMPLED = "prompt too long"
UNUSABLE_REFERENCE = "reference not usable"
_ROUGE = ("rouge1", "rouge2", "rougeL")


def is_overlap(rows: Sequence[PromptRow]) -> bool:
    """Say whether problems are scored by overlap.

    Raises
    ------
    BadInputError
        If only some of them are.
    """
    found = {row.suite == OVERLAP_SUITE for row in rows}
    if len(found) > 1:
        msg = f"'suite' must be '{OVERLAP_SUITE}' for all problems of a benchmark or for none; got both. Split them."
        raise BadInputError(msg)
    return found == {True}


def score_rows(samples: pa.Table, rows: Mapping[str, PromptRow]) -> list[ScoredCompletion]:
    """Return what the suites say of every completion.

    Parameters
    ----------
    samples
        Table with `prompt_id`, `completion` (null where not sampled) and `finish`.
    rows
        Problem of each prompt id.
    """
    judged = [row for row in rows.values() if row.suite != OVERLAP_SUITE]
    suites = {name: get_suite(name) for name in {row.suite for row in judged}}
    # One reference that its suite cannot read must not cost the other problems their verdicts.
    unusable = {item.prompt_id for item in check_references(judged, suites, floor=0.0).rejected}
    return [
        _score(rows[item["prompt_id"]], item["completion"], item["finish"], usable=item["prompt_id"] not in unusable)
        for item in samples.select(["prompt_id", "completion", "finish"]).to_pylist()
    ]


def _score(row: PromptRow, completion: str | None, finish: str, *, usable: bool) -> ScoredCompletion:
    if completion is None:
        return _scored(row, finish, status="not sampled", reason=NOT_SAMPLED)
    if row.suite == OVERLAP_SUITE:
        text = overlap_text(row, completion)
        if not text and finish == "length":
            return _scored(row, finish, status="absent", reason="cut off")
        mean = rouge_f1(text, references_of(row)).mean
        return _scored(row, finish, status="found", reason="scored by overlap", answer=text, verdict=mean)
    suite, truncated = get_suite(row.suite), finish == "length"
    extraction = suite.extract(completion, row, truncated=truncated)
    answer = None if extraction.value is None else suite.canonical(extraction.value)
    if not usable:
        return _scored(row, finish, status=extraction.status, reason=UNUSABLE_REFERENCE, answer=answer)
    verdict = suite.verify(completion, row, truncated=truncated)
    return _scored(
        row, finish, status=extraction.status, reason=verdict.reason, answer=answer, verdict=training_reward(verdict)
    )


def _scored(
    row: PromptRow,
    finish: str,
    *,
    status: str,
    reason: str,
    answer: str | None = None,
    verdict: float | None = None,
) -> ScoredCompletion:
    return ScoredCompletion(
        prompt_id=row.prompt_id, verdict=verdict, answer=answer, status=status, reason=reason, finish=finish
    )


def overlap_text(row: PromptRow, completion: str) -> str:
    """Return the text that is compared: the summary of a summarising problem, else all that is no thinking."""
    return extract_summary(completion) if row.metadata.get("extract") == "summary" else visible_text(completion).strip()


def scored_columns(samples: pa.Table, rows: Mapping[str, PromptRow], *, bert_model: str) -> dict[str, Any]:
    """Return the samples with everything that was read from them, column by column.

    Parameters
    ----------
    samples
        As `sample_shards` gives them; columns of an older scoring are replaced.
    rows
        Problem of each prompt id.
    bert_model
        Model of BERTScore; its column is null where the model is not at hand.
    """
    scored = score_rows(samples, rows)
    names = ("prompt_id", "sample", "completion", "finish", "tokens", "prompt_tokens")
    columns: dict[str, Any] = {name: samples[name].combine_chunks() for name in names}
    columns["domain"] = [rows[row.prompt_id].domain for row in scored]
    columns["extracted"] = pa.array([row.answer for row in scored], pa.string())
    columns["status"] = [row.status for row in scored]
    columns["verdict"] = pa.array([row.verdict for row in scored], pa.float64())
    columns["reason"] = [row.reason for row in scored]
    if not is_overlap(list(rows.values())):
        return columns
    texts = [row.answer for row in scored]
    references = [references_of(rows[row.prompt_id]) for row in scored]
    rouge = [None if text is None else rouge_f1(text, known) for text, known in zip(texts, references, strict=True)]
    for name in _ROUGE:
        columns[name] = pa.array([None if item is None else getattr(item, name) for item in rouge], pa.float64())
    folder = bert_model_at_hand(bert_model)
    if not isinstance(folder, str):
        columns["bert_score"] = bert_f1(texts, references, folder, name=bert_model)
    return columns


def metrics_of(
    table: pa.Table,
    rows: Mapping[str, PromptRow],
    *,
    samples: int,
    ks: Sequence[int],
    bert_model: str,
    confidence: float,
    seed: int,
) -> dict[str, Any]:
    """Return the metrics of a scored table: by verdicts, or by overlap where its suite is open-ended."""
    names = ("prompt_id", "verdict", "extracted", "status", "reason", "finish")
    scored = [
        ScoredCompletion(**{"answer" if name == "extracted" else name: item[name] for name in names})
        for item in table.select(names).to_pylist()
    ]
    if not is_overlap(list(rows.values())):
        return verdict_metrics(scored, samples=samples, ks=ks, confidence=confidence, seed=seed)
    scores = {name: table[name].to_numpy() for name in (*_ROUGE, "bert_score") if name in table.column_names}
    missing = np.full(10, np.nan)
    counts = [
        missing if row.answer is None else bleu_counts(row.answer, references_of(rows[row.prompt_id])) for row in scored
    ]
    why = {} if "bert_score" in scores else {"bert_score": f"BERTScore's model '{bert_model}' was not at hand"}
    return overlap_metrics(scored, scores, np.array(counts), unavailable=why, confidence=confidence, seed=seed)
