"""The settings of the update: what a person sets reaches the trainer, and what does not go together is refused."""

import pytest

from rangeline.config import ObjectiveConfig, build_config
from rangeline.errors import ConfigError
from rangeline.policy.settings import UpdateSettings
from rangeline.stages.warmup import update_settings

OTHER = {
    "learning_rate": 3e-4,
    "schedule": {"kind": "cosine", "warmup_steps": 2, "steps": 9},
    "clip_low": 0.1,
    "clip_high": 0.3,
    "dual_clip": 2.0,
    "kl_coefficient": 0.1,
    "kl_form": "k2",
    "entropy_coefficient": 0.01,
    "mismatch": {"correction": "sequence", "cap": 3.0, "limit": 0.5},
    "updates_per_batch": 2,
    "mini_batches": 4,
    "activation_checkpointing": True,
    "micro_batch_tokens": 100,
    "max_grad_norm": 0.5,
    "aggregation": "dapo",
}


def test_every_setting_reaches_the_trainer():
    """Each setting of the objective, set to another value than usual, changes its own setting of the update."""
    assert set(ObjectiveConfig.model_fields) == set(OTHER)
    usual = update_settings(build_config({"policy": {"precision": "float32"}}, source="t"))
    names = {"schedule": "schedule", "mismatch": "correction"}
    for name, value in OTHER.items():
        given = {"clip_high": 0.3} if name == "dual_clip" else {}
        config = build_config({"policy": {"precision": "float32"}, "objective": {**given, name: value}}, source="t")
        changed = update_settings(config)
        field = names.get(name, name)
        assert getattr(usual, field) != getattr(changed, field), name
    config = build_config({"objective": OTHER, "policy": {"precision": "float32"}}, source="t")
    expected = UpdateSettings(
        **{name: value for name, value in OTHER.items() if name not in names},
        schedule="cosine",
        warmup_steps=2,
        schedule_steps=9,
        correction="sequence",
        correction_cap=3.0,
        max_mismatch=0.5,
    )
    assert expected == update_settings(config)


def test_a_rate_of_ones_own_is_constant():
    """The warm-up of the starting policy gives its own rate, which no schedule of the run bends."""
    config = build_config({"objective": OTHER}, source="t")
    settings = update_settings(config, learning_rate=1e-2)
    assert (1e-2, "constant", 0) == (settings.learning_rate, settings.schedule, settings.warmup_steps)


@pytest.mark.parametrize(
    ("objective", "match"),
    [
        ({"schedule": {"kind": "linear"}}, r"objective\.schedule.*steps must be set, above warmup_steps=0"),
        ({"schedule": {"kind": "cosine", "steps": 3, "warmup_steps": 3}}, r"objective\.schedule.*above warmup_steps=3"),
        ({"dual_clip": 1.1}, r"objective.*dual_clip must be above 1 \+ clip_high = 1\.2"),
        ({"kl_form": "k4"}, r"objective\.kl_form"),
        ({"mismatch": {"correction": "row"}}, r"objective\.mismatch\.correction"),
        ({"mismatch": {"cap": 0}}, r"objective\.mismatch\.cap"),
        ({"mini_batches": 0}, r"objective\.mini_batches"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(objective, match):
    """A schedule without an end, a dual clip inside the clip and unknown names are named before anything runs."""
    with pytest.raises(ConfigError, match=match):
        build_config({"objective": objective}, source="t")
