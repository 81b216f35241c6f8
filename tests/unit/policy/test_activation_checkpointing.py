"""Laws of activation checkpointing: it acts, only where it is asked for, and dropout stays off."""

import pytest
import torch

from rangeline.errors import ConfigError
from rangeline.policy.activation_checkpointing import allow_checkpointing, checkpointed_layers
from rangeline.policy.trainer import PolicyTrainer, UpdateSettings


def calls_of_first_layer(model, run):
    """Count how often the attention of the first layer runs."""
    count = []
    handle = model.model.layers[0].self_attn.register_forward_hook(lambda *_: count.append(1))
    run()
    handle.remove()
    return len(count)


@pytest.mark.parametrize(("wanted", "expected"), [(False, 1), (True, 2)])
def test_layers_run_again_in_the_backward_pass(tiny_model, tiny_batch, wanted, expected):
    """With the setting a layer runs twice a step, without it once."""
    model = tiny_model()
    trainer = PolicyTrainer(model, UpdateSettings(activation_checkpointing=wanted), cpu=True)
    assert expected == calls_of_first_layer(model, lambda: trainer.update(tiny_batch()))


def test_dropout_stays_off(tiny_model, tiny_batch):
    """A model with dropout updates, checkpointed, as one without dropout that keeps everything."""
    found = []
    for dropout, wanted in ((0.0, False), (0.5, True)):
        settings = UpdateSettings(learning_rate=1e-3, activation_checkpointing=wanted)
        trainer = PolicyTrainer(tiny_model(attention_dropout=dropout), settings, cpu=True)
        trainer.update(tiny_batch())
        found.append(torch.cat([p.detach().flatten() for p in trainer.model.parameters()]))
    assert torch.equal(*found)


def test_model_is_left_as_it_was(tiny_model):
    """After the block, and after an error in it, every module is in evaluation mode again."""
    model = tiny_model()
    allow_checkpointing(model)
    with checkpointed_layers(model):
        assert model.model.layers[0].training
        assert not model.model.layers[0].self_attn.training
    assert not any(module.training for module in model.modules())
    with pytest.raises(ZeroDivisionError, match="zero"), checkpointed_layers(model):
        _ = 1 / 0
    assert not any(module.training for module in model.modules())


def test_model_without_such_layers_is_refused():
    """A model that cannot be checkpointed is an error, not a slow surprise."""
    with pytest.raises(ConfigError, match=r"'activation_checkpointing' must be false .*; got Linear"):
        allow_checkpointing(torch.nn.Linear(2, 2))
