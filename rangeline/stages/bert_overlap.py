"""BERTScore, where its model is at hand: never downloaded in the middle of an evaluation, never replaced by another."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rangeline.records import FloatArray

DEFAULT_MODEL = "roberta-large"
"""bert-score's own model for English; RRPO names none."""


def bert_model_at_hand(name: str = DEFAULT_MODEL) -> Path | str:
    """Return the folder of a model, or the reason why it is not at hand.

    Parameters
    ----------
    name
        A folder, or a Hub name that is looked up in the local cache only.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    if Path(name).is_dir():
        return Path(name)
    try:
        return Path(snapshot_download(name, local_files_only=True))
    except (LocalEntryNotFoundError, HFValidationError):
        return f"BERTScore's model '{name}' is not on this machine"


def bert_f1(texts: Sequence[str | None], references: Sequence[Sequence[str]], folder: Path, *, name: str) -> FloatArray:
    """Return BERTScore-F1 of each text, the best over its references; NaN where there is no text.

    An empty text shares no token with anything and scores 0.

    Parameters
    ----------
    texts
        N texts; None where nothing was sampled.
    references
        At least one reference of each.
    folder
        Model folder, as `bert_model_at_hand` gives it.
    name
        Name by which bert-score knows which layer to read; an unknown one takes the last layer.

    Notes
    -----
    Zhang et al. 2020; no importance weights, no rescaling to a baseline.
    """
    from bert_score import BERTScorer
    from bert_score.utils import model2layers
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(str(folder))
    layers = model2layers.get(name, int(config.num_hidden_layers))
    scorer = BERTScorer(model_type=str(folder), num_layers=layers, device="cpu")
    # Tokenizers without a limit name a number that the tokenizer itself cannot hold.
    limit = int(config.max_position_embeddings) - 2
    scorer._tokenizer.model_max_length = min(scorer._tokenizer.model_max_length, limit)
    asked = [i for i, text in enumerate(texts) if text is not None and text.strip()]
    score_N = np.array([np.nan if text is None else 0.0 for text in texts])
    if asked:
        pairs = [str(texts[i]) for i in asked], [list(references[i]) for i in asked]
        score_N[asked] = scorer.score(*pairs)[2].numpy().astype(np.float64)
    return score_N
