"""Small models with a tied head that a vLLM server can hold, and the server that tests share."""

import itertools
from dataclasses import dataclass, field
from pathlib import Path

import torch
from tiny import tiny_byte_model
from transformers import LlamaConfig, LlamaForCausalLM

from rangeline.policy.weight_sync import WeightSync
from rangeline.rollout.engine import EncodedPrompt
from rangeline.rollout.pretrained import stop_ids
from rangeline.rollout.vllm_client import VllmClient
from rangeline.rollout.vllm_engine import VllmEngine
from rangeline.rollout.vllm_server import VllmServer

KEY = {"run_seed": 3, "iteration": 1, "purpose": "policy"}


def tied_model(seed=0, *, stop=None):
    """Return a random Llama whose head is its embedding; `stop` adds to the logit of the end token everywhere."""
    _, tokenizer = tiny_byte_model()
    end = tokenizer.eos_token_id
    torch.manual_seed(seed)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=64,
            intermediate_size=96,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            max_position_embeddings=1024,
            initializer_range=0.15,
            tie_word_embeddings=True,
            eos_token_id=end,
        )
    ).eval()
    if stop is not None:
        with torch.no_grad():
            # The first dimension of the stream is 1 everywhere: what the embedding holds there is a bias of the head.
            for layer in model.model.layers:
                layer.self_attn.o_proj.weight[0] = 0.0
                layer.mlp.down_proj.weight[0] = 0.0
            model.model.embed_tokens.weight[:, 0] = 1.0
            model.model.norm.weight[0] = 1.0
            model.model.embed_tokens.weight[end, 0] += stop
    return model, tokenizer


def save_tied(folder, seed=0):
    """Save such a model; return its folder."""
    model, tokenizer = tied_model(seed)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return Path(folder)


def moved(model, *, scale=0.05, seed=9):
    """Return a copy of a model with all weights moved a little, as an update would."""
    other, _ = tied_model()
    other.load_state_dict(model.state_dict())
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in other.parameters():
            weight += scale * torch.randn(weight.shape, generator=generator) * weight.abs().mean()
    return other


def encoded(*lengths):
    """Return prompts of given lengths."""
    return [
        EncodedPrompt(prompt_id=f"p{n}", token_ids=tuple((7 * n + 3 * i) % 200 + 1 for i in range(length)))
        for n, length in enumerate(lengths)
    ]


@dataclass
class Served:
    """A running server and what tests do with it."""

    server: VllmServer
    client: VllmClient
    root: Path
    folder: Path
    """The model that it began with."""
    _sync: WeightSync | None = None
    _versions: itertools.count = field(default_factory=itertools.count)

    @property
    def sync(self):
        """Give the trainer's side of the shared server."""
        if self._sync is None:
            self._sync = WeightSync(self.client, root=self.root, owner="tests")
        return self._sync

    def hold(self, model, tokenizer):
        """Sync a model and return the engine that samples it."""
        version = next(self._versions)
        report = self.sync.sync(model, version)
        return VllmEngine(
            self.client,
            tokenizer,
            stop_ids=stop_ids(tokenizer, model),
            policy_version=version,
            weight_version=report.version,
        )
