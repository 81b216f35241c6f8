"""Laws of LoRA adapters on a real server: loaded, replaced in place, and taken away while it runs."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from served import encoded, save_tied, tied_model

from rangeline.errors import RolloutError
from rangeline.rollout.vllm_client import VllmClient
from rangeline.rollout.vllm_scoring import next_token_logprobs
from rangeline.rollout.vllm_server import ServerOptions, VllmServer

pytestmark = [pytest.mark.slow, pytest.mark.vllm]

RANK, TARGETS = 4, ("q_proj", "v_proj")


@pytest.fixture(scope="module")
def adapted(tmp_path_factory):
    """Run a server that takes adapters; give its address."""
    folder = tmp_path_factory.mktemp("adapted")
    options = ServerOptions(
        model=save_tied(folder / "model"), sync_root=folder / "root", max_model_len=512, lora=True, lora_rank=8
    )
    with VllmServer.start(options, log=folder / "vllm.log") as server:
        yield server.url


def write_adapter(folder, model, seed):
    """Write an adapter in peft's layout, and add it to the model in place."""
    generator, tensors = torch.Generator().manual_seed(seed), {}
    for n, layer in enumerate(model.model.layers):
        for target in TARGETS:
            weight = getattr(layer.self_attn, target).weight
            down = torch.randn(RANK, weight.shape[1], generator=generator) * 0.2
            up = torch.randn(weight.shape[0], RANK, generator=generator) * 0.2
            place = f"base_model.model.model.layers.{n}.self_attn.{target}"
            tensors |= {f"{place}.lora_A.weight": down, f"{place}.lora_B.weight": up}
            with torch.no_grad():
                weight += up @ down
    folder.mkdir()
    save_file(tensors, folder / "adapter_model.safetensors")
    settings = {"peft_type": "LORA", "r": RANK, "lora_alpha": RANK, "target_modules": list(TARGETS), "bias": "none"}
    (folder / "adapter_config.json").write_text(json.dumps({**settings, "task_type": "CAUSAL_LM"}))
    return folder


def test_adapters_are_loaded_replaced_and_taken_away(adapted, tmp_path):
    """An adapter's log-probabilities are those of base plus product; replaced in place, no memory of prompts is old."""
    prompt, client = encoded(300)[0].token_ids, VllmClient(adapted)
    named = VllmClient(adapted, model="adapter")
    for number in (1, 2):
        model, _ = tied_model()
        folder = write_adapter(tmp_path / f"a{number}", model, number)
        client.load_adapter("adapter", folder, in_place=number == 2)
        with torch.no_grad():
            expected = torch.log_softmax(model(torch.tensor([prompt])).logits[0, -1], dim=-1)[[3, 8, 50]]
        np.testing.assert_allclose(next_token_logprobs(named, prompt, [3, 8, 50]), expected, atol=1e-4)
    with pytest.raises(RolloutError, match=r"400: .*already been loaded"):
        client.load_adapter("adapter", folder)
    client.unload_adapter("adapter")
    with pytest.raises(RolloutError, match=r"404: .*does not exist"):
        next_token_logprobs(named, prompt, [3])
