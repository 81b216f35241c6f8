"""The model folders that both sides of the training benchmark read."""

from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from benchmarks.training.workload import NUM_WORDS, SEED, Workload
from rangeline.rollout.pretrained import load_pretrained
from rangeline.stages.workspace import model_cache


def make_model(workload: Workload, folder: Path) -> None:
    """Write the model folder of a workload: random weights and a tokenizer of words, or a packaged model."""
    if workload.source:
        pretrained = load_pretrained(workload.source, cache_dir=model_cache())
        pretrained.model.save_pretrained(folder)
        pretrained.tokenizer.save_pretrained(folder)
        return
    torch.manual_seed(SEED)
    # Dropout is off on both sides: it would make their losses differ.
    config = GPT2Config(
        vocab_size=NUM_WORDS + 1,
        n_positions=256,
        n_embd=256,
        n_layer=4,
        n_head=4,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=NUM_WORDS,
        eos_token_id=NUM_WORDS,
    )
    GPT2LMHeadModel(config).save_pretrained(folder)
    words = {f"w{i}": i for i in range(NUM_WORDS)} | {"<end>": NUM_WORDS}
    raw = Tokenizer(models.WordLevel(words, unk_token="<end>"))
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(
        tokenizer_object=raw,
        pad_token="<end>",
        eos_token="<end>",
        unk_token="<end>",
        clean_up_tokenization_spaces=False,
    ).save_pretrained(folder)
