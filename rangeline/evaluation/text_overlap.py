"""Overlap of a written text with its references: ROUGE of each text, BLEU of all of them together.

Computes ROUGE-1, -2 and -L as F1 by rouge-score, their mean, and corpus BLEU by sacrebleu, all in [0, 1].
Formula of ROUGE F1: 2 P R / (P + R) of n-grams, or of the longest common subsequence; of several references the best
counts. BLEU: brevity penalty times the geometric mean of 1- to 4-gram precisions, with counts summed over all texts.
ROUGE is divided by texts, BLEU by n-grams: a long text weighs more in BLEU. Left out: stemming (rouge-score's default)
and tokenisers other than sacrebleu's 13a, because the papers name neither.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from rangeline.errors import BadInputError, ToolError
from rangeline.evaluation.sampling_metrics import Estimate
from rangeline.records import FloatArray
from rangeline.seeds import stream
from rangeline.suites.final_text import visible_text

_NUM_RESAMPLES = 1000
_ORDERS = 4

_MARKER = re.compile(
    r"^[ \t#*_>-]*(?:(?:final|brief|short|concise|one[- ]sentence)[ \t]+)?"
    r"(?:summary(?: of [^:\n]{0,60})?|tl;?dr)[ \t*_]*[:\n][ \t*_]*",
    re.IGNORECASE | re.MULTILINE,
)
_BOILERPLATE = re.compile(
    r"\A(?:(?:sure|certainly|of course|okay|ok)[!,.:]?\s+)?"
    r"(?:here(?:'s| is| are)[^.:\n]{0,80}summary[^.:\n]{0,80}:\s*|(?:sure|certainly|of course)[!.]\s*)?",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RougeScores:
    """F1 of one text, in [0, 1]."""

    rouge1: float
    rouge2: float
    rougeL: float

    @property
    def mean(self) -> float:
        """Mean of the three."""
        return (self.rouge1 + self.rouge2 + self.rougeL) / 3


def extract_summary(completion: str) -> str:
    r"""Return the summary of a completion: the text after its marker, else its first non-empty paragraph.

    Parameters
    ----------
    completion
        Text of the policy; what stands inside a thinking block is not part of it.

    Returns
    -------
    str
        One line, single spaces, without lead-ins such as "Sure! Here is a summary:"; may be empty.

    Notes
    -----
    RRPO, appendix B.3. Which words are a marker or a lead-in is ours; of several markers the last one that is
    followed by text counts.

    Examples
    --------
    >>> extract_summary("Let me think.\n\n**Summary:** Tom is late.\nAnn waits.")
    'Tom is late. Ann waits.'
    >>> extract_summary("\n\nTom is  late.\n\nAnything else?")
    'Tom is late.'
    """
    text = visible_text(completion).replace("\r\n", "\n")
    for marker in reversed(list(_MARKER.finditer(text))):
        after = " ".join(text[marker.end() :].split())
        if after:
            return after
    for paragraph in re.split(r"\n[ \t]*\n", text):
        kept = " ".join(_BOILERPLATE.sub("", paragraph.strip()).split())
        if kept:
            return kept
    return ""


def rouge_f1(text: str, references: Sequence[str]) -> RougeScores:
    """Return ROUGE-1, -2 and -L of a text; of several references the best counts, measure by measure.

    Raises
    ------
    BadInputError
        If there is no reference.

    Examples
    --------
    >>> rouge_f1("the cat sat", ["the cat ran"]).rouge1.__round__(3)
    0.667
    """
    _require_references(references)
    scores = (
        _measure("rouge_score.rouge_scorer")
        .RougeScorer(["rouge1", "rouge2", "rougeL"])
        .score_multi(list(references), text)
    )
    return RougeScores(**{name: float(score.fmeasure) for name, score in scores.items()})


def bleu_counts(text: str, references: Sequence[str]) -> FloatArray:
    """Return what BLEU needs of one text: 4 n-gram matches, 4 totals, its length and the nearest reference's.

    Raises
    ------
    BadInputError
        If there is no reference.

    Examples
    --------
    >>> bleu_counts("the cat sat", ["the cat ran"]).tolist()
    [2.0, 1.0, 0.0, 0.0, 3.0, 2.0, 1.0, 0.0, 3.0, 3.0]
    """
    _require_references(references)
    score = _measure("sacrebleu.metrics.bleu").BLEU().corpus_score([text], [[reference] for reference in references])
    return np.array([*score.counts, *score.totals, score.sys_len, score.ref_len], dtype=np.float64)


def corpus_bleu(counts_NC: FloatArray, prompt_id_N: Sequence[str], *, confidence: float, seed: int) -> Estimate:
    """Return corpus BLEU in [0, 1] with an interval from resampling whole prompts.

    Parameters
    ----------
    counts_NC
        Rows of `bleu_counts`, one a text.
    prompt_id_N
        Prompt of each text, in any order.
    confidence
        Of the percentile interval, in (0, 1).
    seed
        Seed of the draws.

    Returns
    -------
    Estimate
        Without a value where there is no text; without an interval where there is one prompt.

    Raises
    ------
    BadInputError
        If lengths differ.
    """
    if len(counts_NC) != len(prompt_id_N):
        msg = f"'counts_NC' must have one row a prompt id; got {len(counts_NC)} for {len(prompt_id_N)}. Pair them."
        raise BadInputError(msg)
    names, prompt_N = np.unique(np.array(prompt_id_N, dtype=str), return_inverse=True)
    if not len(names):
        return Estimate(value=None, lower=None, upper=None, num_prompts=0)
    counts_PC = np.zeros((len(names), 2 * _ORDERS + 2))
    np.add.at(counts_PC, prompt_N, counts_NC)
    value = _bleu(counts_PC.sum(axis=0))
    if len(names) == 1:
        return Estimate(value=value, lower=None, upper=None, num_prompts=1)
    draws = stream(seed, "corpus_bleu").multinomial(
        len(names), np.full(len(names), 1 / len(names)), size=_NUM_RESAMPLES
    )
    values = [_bleu(counts) for counts in draws @ counts_PC]
    lower, upper = np.quantile(values, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Estimate(value=value, lower=float(lower), upper=float(upper), num_prompts=len(names))


def _bleu(counts_C: FloatArray) -> float:
    whole = [int(count) for count in counts_C]
    score = _measure("sacrebleu.metrics.bleu").BLEU.compute_bleu(
        whole[:_ORDERS], whole[_ORDERS : 2 * _ORDERS], whole[-2], whole[-1], smooth_method="exp"
    )
    return float(score.score) / 100


def _measure(name: str) -> Any:
    """Import a measuring package; it comes with an extra, and verdicts need none of them."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        package = name.partition(".")[0]
        msg = f"Package '{package}' must be installed to score texts; got none. Install rangeline[evaluation]."
        raise ToolError(msg) from error


def _require_references(references: Sequence[str]) -> None:
    if isinstance(references, str) or not references:
        msg = f"'references' must be a list of at least one text; got {str(references)[:80]!r}. Give the references."
        raise BadInputError(msg)
