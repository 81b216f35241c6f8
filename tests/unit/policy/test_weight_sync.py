"""Laws of the proof that a server holds the policy's weights, without a server."""

import json

import numpy as np
import pytest
import torch
from served import moved, tied_model

from rangeline.errors import StaleWeightsError
from rangeline.policy.weight_sync import Probe, ProbePrompt, probe_model, probe_prompt, require_fresh, write_weights

ASKED = ProbePrompt(prompt=(5, 9, 40, 7), following=(3, 8))


def probe(read=0.0, following=0.0):
    """Return a probe whose values are shifted by this much."""
    return Probe(read_X=np.array([-1.0, -2.0]) + read, next_X=np.array([-3.0]) + following)


def test_the_probe_reads_what_the_model_says():
    """Values are log-softmax of the model's own logits: of each prompt token but the first, and of the next tokens."""
    model, _ = tied_model()
    with torch.no_grad():
        logprobs = torch.log_softmax(model(torch.tensor([ASKED.prompt])).logits[0], dim=-1).numpy()
    found = probe_model(model, ASKED)
    np.testing.assert_allclose(found.read_X, [logprobs[0, 9], logprobs[1, 40], logprobs[2, 7]], atol=1e-5)
    np.testing.assert_allclose(found.next_X, logprobs[3, [3, 8]], atol=1e-5)


def test_the_prompt_is_longer_than_two_blocks_of_the_cache():
    """The prompt is fixed, above 300 tokens where there is room, and inside vocabulary and room."""
    asked = probe_prompt(258, 768)
    assert asked == probe_prompt(258, 768)
    assert 300 < len(asked.prompt)
    assert max(*asked.prompt, *asked.following) < 258
    assert 62 == len(probe_prompt(258, 64).prompt)


def test_the_larger_gap_counts_and_no_number_is_infinite():
    """One of the two readings is enough to tell weights apart; a value that is no number is never near."""
    assert 0.5 == probe(0.1).gap(probe(following=0.5))
    assert float("inf") == probe(float("nan")).gap(probe())


def test_new_weights_pass():
    """Within the tolerance nothing is raised, with or without weights before."""
    require_fresh(probe(1e-6), probe(), None, tolerance=1e-4, version="v")
    require_fresh(probe(1e-6), probe(), probe(1.0), tolerance=1e-4, version="v")


@pytest.mark.parametrize(
    ("held", "match"),
    [
        (probe(1.0, 1.0), "gap of 1 to them, and 0 to those before .tolerance 0.0001; the weights themselves differ"),
        (probe(0.0, 1.0), "only what it remembers of prompts is old: its prefix cache was not reset"),
        (probe(float("nan")), "gap of inf to them"),
    ],
)
def test_what_is_stale_is_named(held, match):
    """Old weights, and new weights under an old prefix cache, are errors that say which of the two it is."""
    with pytest.raises(StaleWeightsError, match=match):
        require_fresh(held, probe(), probe(1.0, 1.0), tolerance=1e-4, version="v")


def test_every_part_of_a_model_is_seen():
    """Whatever tensor changed, the probe's values change: no weight of the model is out of its sight."""
    model, _ = tied_model()
    before = probe_model(model, probe_prompt(258, 768))
    for name, _ in model.named_parameters():
        changed, _ = tied_model()
        with torch.no_grad():
            changed.get_parameter(name).mul_(1.05)
        assert before.gap(probe_model(changed, probe_prompt(258, 768))) > 1e-4, name


def test_checkpoints_for_a_server_are_whole(tmp_path):
    """The marker lists every file with its size, and a second checkpoint of a name replaces the first."""
    model, _ = tied_model()
    for weights in (model, moved(model)):
        folder = write_weights(weights, tmp_path / "v1")
    listed = json.loads((folder / "COMPLETE").read_text())["files"]
    assert {path.name: path.stat().st_size for path in folder.iterdir() if path.name != "COMPLETE"} == {
        name: facts["size"] for name, facts in listed.items()
    }
    assert ["v1"] == [path.name for path in tmp_path.iterdir()]
