"""Laws of weight sync on a real server: new weights are proved, every way to hold old or half new ones is caught."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from served import KEY, encoded, moved, save_tied, tied_model

from rangeline.errors import RolloutError, StaleWeightsError, WeightSyncError
from rangeline.policy.weight_sync import probe_model, probe_prompt, probe_server, require_fresh, write_weights
from rangeline.records import SamplingPlan

pytestmark = [pytest.mark.slow, pytest.mark.vllm]

PLAN = SamplingPlan(group_size=2, temperature=1.0, max_tokens=4)
TOLERANCE = 1e-4


def asked_of(served):
    """Return the probe's prompt on the shared server."""
    return probe_prompt(len(tied_model()[1]), served.client.max_model_len)


def test_synced_weights_are_the_new_and_not_the_old(vllm_served):
    """After a sync the server's log-probabilities are those of the new weights to 1e-4, far from those before."""
    model, tokenizer = tied_model(seed=1)
    vllm_served.hold(model, tokenizer)
    after, others = moved(model), set(vllm_served.root.iterdir())
    report = vllm_served.sync.sync(after, 900)
    assert report.gap_new < TOLERANCE
    assert report.gap_old > 50 * TOLERANCE
    assert report.gap_old == pytest.approx(report.change, rel=0.01)
    assert "tests:900" == vllm_served.client.weight_version
    assert not vllm_served.client.is_paused
    assert others == set(vllm_served.root.iterdir())


def test_an_updates_small_step_is_seen(vllm_served):
    """A change of every weight by 5e-6, a small step of AdamW, is told apart from no change."""
    model, tokenizer = tied_model(seed=2)
    vllm_served.hold(model, tokenizer)
    after, _ = tied_model(seed=2)
    with torch.no_grad():
        for i, weight in enumerate(after.parameters()):
            weight += 5e-4 * torch.sign(torch.randn(weight.shape, generator=torch.Generator().manual_seed(i)))
    report = vllm_served.sync.sync(after, 901)
    assert report.gap_new < TOLERANCE < report.gap_old


def test_a_stale_tied_head_is_caught(vllm_served):
    """The stock reload keeps the packed copy of a tied head on the CPU: it says success, and the probe says no."""
    model, tokenizer = tied_model(seed=1)
    vllm_served.hold(model, tokenizer)
    after, client = moved(model, scale=0.2), vllm_served.client
    folder = write_weights(after, vllm_served.root / "stock")
    client.pause()
    client.post("/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": str(folder)}}, where="test")
    client.reset_prefix_cache()
    client.resume()
    asked = asked_of(vllm_served)
    held, new, old = probe_server(client, asked), probe_model(after, asked), probe_model(model, asked)
    with pytest.raises(StaleWeightsError, match="the weights themselves differ"):
        require_fresh(held, new, old, tolerance=TOLERANCE, version="x")
    # A head of its own with the old embedding is what the server holds now.
    head, half = torch.nn.Linear(1, 1, bias=False), moved(model, scale=0.2)
    head.weight = torch.nn.Parameter(model.get_output_embeddings().weight.detach().clone())
    half.set_output_embeddings(head)
    assert held.gap(probe_model(half, asked)) < TOLERANCE
    assert vllm_served.sync.sync(after, 902).gap_new < TOLERANCE


def test_a_stale_prefix_cache_is_caught(vllm_served):
    """Loaded weights alone leave keys and values of the old ones in the prefix cache: only a long prompt shows it."""
    model, tokenizer = tied_model(seed=1)
    vllm_served.hold(model, tokenizer)
    after, client, asked = moved(model), vllm_served.client, asked_of(vllm_served)
    new, old = probe_model(after, asked), probe_model(model, asked)
    probe_server(client, asked)
    client.load_checkpoint(write_weights(after, vllm_served.root / "cached"))
    stale = probe_server(client, asked)
    assert np.abs(stale.read_X - new.read_X).mean() < TOLERANCE
    with pytest.raises(StaleWeightsError, match="its prefix cache was not reset"):
        require_fresh(stale, new, old, tolerance=TOLERANCE, version="x")
    client.reset_prefix_cache()
    require_fresh(probe_server(client, asked), new, old, tolerance=TOLERANCE, version="x")


def test_partial_updates_are_refused_before_anything_is_loaded(vllm_served):
    """A checkpoint that lacks a tensor, or has one of another shape, changes nothing; the engine waits, paused."""
    model, tokenizer = tied_model(seed=1)
    engine = vllm_served.hold(model, tokenizer)
    client, asked = vllm_served.client, asked_of(vllm_served)
    name = "model.layers.0.self_attn.k_proj.weight"
    for change, match in (("drop", "missing .'model.layers.0.self_attn.k_proj"), ("shape", "must have shape .32, 64.")):
        folder = write_weights(moved(model), vllm_served.root / change)
        tensors = load_file(folder / "model.safetensors")
        tensors[name] = tensors[name][:16].clone()
        if change == "drop":
            del tensors[name]
        save_file(tensors, folder / "model.safetensors")
        sizes = {"model.safetensors": {"size": (folder / "model.safetensors").stat().st_size}}
        (folder / "COMPLETE").write_text(json.dumps({"files": sizes}))
        client.pause()
        with pytest.raises(WeightSyncError, match=match) as caught:
            client.load_checkpoint(folder)
        assert "update refused" == caught.value.state
        with pytest.raises(StaleWeightsError, match="it is paused, as a failed weight update leaves it"):
            engine.generate(encoded(5), PLAN, **KEY)
        client.resume()
    assert probe_server(client, asked).gap(probe_model(model, asked)) < TOLERANCE


@pytest.mark.parametrize("place", ["outside", "unmarked", "cut", "root"])
def test_only_complete_checkpoints_below_the_root_are_loaded(vllm_served, tmp_path, place):
    """A folder outside the root, without its marker, with a file cut short, or the root itself is refused."""
    model, _ = tied_model(seed=1)
    folder = write_weights(model, (tmp_path if place == "outside" else vllm_served.root) / f"try-{place}")
    if place == "unmarked":
        (folder / "COMPLETE").unlink()
    if place == "cut":
        with (folder / "model.safetensors").open("r+b") as file:
            file.truncate(5000)
    (vllm_served.root / "link").symlink_to(folder) if place == "outside" else None
    sent = {"outside": vllm_served.root / "link", "root": vllm_served.root}.get(place, folder)
    with pytest.raises(WeightSyncError, match=r"refused: .*Nothing was changed"):
        vllm_served.client.load_checkpoint(sent)
    (vllm_served.root / "link").unlink(missing_ok=True)


def test_a_failed_sync_leaves_the_engine_paused_until_a_good_one(vllm_served):
    """Weights that are no numbers load and fail the proof: nothing can be sampled until a complete sync succeeds."""
    model, tokenizer = tied_model(seed=1)
    engine = vllm_served.hold(model, tokenizer)
    broken = moved(model)
    with torch.no_grad():
        broken.model.layers[1].mlp.down_proj.weight[0, 0] = float("nan")
    with pytest.raises(RolloutError):
        vllm_served.sync.sync(broken, 903)
    assert vllm_served.client.is_paused
    assert vllm_served.sync.version is None
    with pytest.raises(StaleWeightsError, match="paused"):
        engine.generate(encoded(5), PLAN, **KEY)
    assert vllm_served.hold(model, tokenizer).generate(encoded(5), PLAN, **KEY).completion_N


def test_samples_of_other_weights_are_refused(vllm_served):
    """An engine of one version takes no sample of another, even where the server is well and the weights are equal."""
    model, tokenizer = tied_model(seed=1)
    former = vllm_served.hold(model, tokenizer)
    vllm_served.hold(model, tokenizer)
    with pytest.raises(StaleWeightsError, match=r"must come from weights 'tests:\d+'; got .'tests:\d+'"):
        former.generate(encoded(5), PLAN, **KEY)


def test_the_server_began_with_the_tensors_that_updates_must_have(vllm_served, tmp_path):
    """What the server says of itself: its model, its root, log-probabilities at the sampling temperature."""
    described = vllm_served.client.describe()
    assert str(vllm_served.root.resolve()) == described["root"]
    assert "processed_logprobs" == described["logprobs_mode"]
    assert (
        save_tied(tmp_path / "again").joinpath("model.safetensors").stat().st_size
        == (vllm_served.folder / "model.safetensors").stat().st_size
    )
