import math

import numpy as np
import pytest

from rangeline.stages.bert_overlap import DEFAULT_MODEL, bert_f1, bert_model_at_hand


def test_equal_texts_score_one_and_silence_scores_zero(bert):
    """A text equals itself, an empty text shares nothing, nothing is missing; the best reference counts."""
    texts, references = ["abc def", "", None, "xyz"], [["abc def"], ["abc"], ["abc"], ["abc", "xyz"]]
    score_N = bert_f1(texts, references, bert, name=str(bert))
    assert pytest.approx([1.0, 0.0, math.nan, 1.0], abs=1e-5, nan_ok=True) == score_N.tolist()


def test_a_text_longer_than_the_model_is_cut(bert):
    """A text beyond the model's positions is scored by its beginning."""
    assert np.isfinite(bert_f1(["abcdefgh " * 20], [["abc"]], bert, name=str(bert))).all()


def test_a_model_that_is_not_on_this_machine_is_named(bert):
    """A folder is at hand; a Hub name that was never fetched is not, and nothing is fetched for it."""
    assert bert == bert_model_at_hand(str(bert))
    assert f"BERTScore's model '{DEFAULT_MODEL}' is not on this machine" == bert_model_at_hand()
