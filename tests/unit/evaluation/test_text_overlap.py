import numpy as np
import pytest
from rouge_score.rouge_scorer import RougeScorer
from sacrebleu import corpus_bleu as sacre_corpus_bleu

from rangeline.errors import BadInputError
from rangeline.evaluation.text_overlap import bleu_counts, corpus_bleu, extract_summary, rouge_f1

TEXTS = ["Tom will bring the red car on Monday.", "Ann is late for the meeting with Bob again.", "Nobody came."]
KNOWN = [
    ["Tom brings the red car on Monday."],
    ["Ann is late for the meeting again.", "Ann is late with Bob."],
    ["No one came to it."],
]


@pytest.mark.parametrize(
    ("completion", "summary"),
    [
        ("Summary: Tom is late.", "Tom is late."),
        ("**Summary:**\nTom is late.\nAnn waits.", "Tom is late. Ann waits."),
        ("## Summary\n\nTom is late.", "Tom is late."),
        ("Thinking it over.\n\nFinal summary: Tom is late.\n\nDone.", "Tom is late. Done."),
        ("Summary: draft\n\nSummary: Tom is late.", "Tom is late."),
        ("Tom is late.\n\nSummary:", "Tom is late."),
        ("TL;DR: Tom is late.", "Tom is late."),
        ("\n\n  Tom  is\nlate.\n\nAnything else?", "Tom is late."),
        ("Sure! Here is a summary of the dialogue:\n\nTom is late.", "Tom is late."),
        ("Here's a brief summary: Tom is late.", "Tom is late."),
        ("<think>Summary: wrong one</think>\nTom is late.", "Tom is late."),
        ("In summary, Tom is late.", "In summary, Tom is late."),
        ("", ""),
        (" \n\n \n", ""),
    ],
)
def test_summary_is_what_follows_the_marker_or_the_first_paragraph(completion, summary):
    """Text after the last marker that is followed by text, else the first paragraph, without lead-ins."""
    assert summary == extract_summary(completion)


def test_rouge_of_three_words_is_worked_by_hand():
    """Two of three words, one of two pairs, and a common subsequence of two."""
    scores = rouge_f1("the cat sat", ["the cat ran"])
    assert pytest.approx((2 / 3, 1 / 2, 2 / 3)) == (scores.rouge1, scores.rouge2, scores.rougeL)
    assert pytest.approx((2 / 3 + 1 / 2 + 2 / 3) / 3) == scores.mean


def test_the_best_reference_counts_for_each_measure():
    """Several references give the largest score, measure by measure."""
    for text, known in zip(TEXTS, KNOWN, strict=True):
        single = [RougeScorer(["rouge1", "rouge2", "rougeL"]).score(reference, text) for reference in known]
        best = {name: max(item[name].fmeasure for item in single) for name in ("rouge1", "rouge2", "rougeL")}
        scores = rouge_f1(text, known)
        assert best == {"rouge1": scores.rouge1, "rouge2": scores.rouge2, "rougeL": scores.rougeL}


def test_an_empty_text_overlaps_with_nothing():
    """Silence scores 0, for it was a reply."""
    assert rouge_f1("", ["the cat"]).mean == 0.0


def test_bleu_of_all_texts_equals_sacrebleu():
    """Summed counts give the corpus value of sacrebleu itself."""
    single = [known[0] for known in KNOWN]
    counts = np.array([bleu_counts(text, [reference]) for text, reference in zip(TEXTS, single, strict=True)])
    whole = corpus_bleu(counts, ["a", "b", "c"], confidence=0.9, seed=0)
    assert pytest.approx(sacre_corpus_bleu(TEXTS, [single]).score / 100, rel=1e-12) == whole.value
    assert whole.num_prompts == 3
    assert 0 <= whole.lower <= whole.value <= whole.upper <= 1


def test_bleu_weighs_texts_by_their_length():
    """The value is no mean of sentence values."""
    counts = np.array([bleu_counts(text, known) for text, known in zip(TEXTS, KNOWN, strict=True)])
    whole = corpus_bleu(counts, ["a", "b", "c"], confidence=0.9, seed=0).value
    single = [corpus_bleu(row[None], ["a"], confidence=0.9, seed=0).value for row in counts]
    assert abs(whole - np.mean(single)) > 0.01


def test_bleu_of_one_problem_has_no_interval_and_of_none_no_value():
    """One cluster tells no spread, and no cluster tells nothing."""
    one = corpus_bleu(bleu_counts("a b c d", ["a b c d"])[None], ["p"], confidence=0.9, seed=0)
    assert (pytest.approx(1.0), None, None) == (one.value, one.lower, one.upper)
    assert corpus_bleu(np.empty((0, 10)), [], confidence=0.9, seed=0).value is None


def test_order_of_problems_changes_no_interval():
    """Problems are clusters by id."""
    counts = np.array([bleu_counts(text, known) for text, known in zip(TEXTS, KNOWN, strict=True)])
    forth = corpus_bleu(counts, ["a", "b", "c"], confidence=0.9, seed=1)
    assert forth == corpus_bleu(counts[::-1], ["c", "b", "a"], confidence=0.9, seed=1)


@pytest.mark.parametrize("references", [[], "the cat"])
def test_references_are_a_list_of_texts(references):
    """Neither nothing nor a bare text, whose letters would be taken for references."""
    with pytest.raises(BadInputError, match="'references' must be a list of at least one text"):
        rouge_f1("the cat", references)
    with pytest.raises(BadInputError, match="'references' must be a list of at least one text"):
        bleu_counts("the cat", references)


def test_counts_are_paired_with_problems():
    """A row without a prompt id is refused."""
    with pytest.raises(BadInputError, match="'counts_NC' must have one row a prompt id; got 1 for 2"):
        corpus_bleu(np.zeros((1, 10)), ["a", "b"], confidence=0.9, seed=0)
