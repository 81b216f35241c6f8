"""Laws of requests: what a form or a command gives by name counts, what it leaves out is the workspace's."""

import pytest

from flows.common import TrainRequest, settings_with
from rangeline.config import EvaluateConfig, build_config
from rangeline.errors import ConfigError

OWN = build_config(
    {
        "train": {"iterations": 9, "on_alarm": "continue"},
        "advantages": {"reference_width": 0.5},
        "reward": {"source": "majority", "domains": {"law": "verifier"}},
    },
    source="test",
)


def asked(**sections):
    """Return the settings of a run that was asked for."""
    return TrainRequest.model_validate(sections).over(OWN)


def test_a_request_changes_what_it_names():
    """One setting given by name leaves its neighbours, and every other section, as the workspace has them."""
    found = asked(train={"iterations": 2})
    assert found == OWN.model_copy(update={"train": OWN.train.model_copy(update={"iterations": 2})})


def test_an_empty_request_is_the_workspace():
    """Nothing given is the workspace's own settings."""
    assert asked() == OWN


def test_a_default_given_by_name_counts():
    """A value that equals the class's default replaces the workspace's where it was given."""
    assert "stop" == asked(train={"on_alarm": "stop"}).train.on_alarm


def test_a_mapping_given_by_name_replaces_the_other():
    """Domains of the request are all there are: they are not mixed with those of the workspace."""
    assert {} == asked(reward={"domains": {}}).reward.domains
    assert "majority" == asked(reward={"domains": {}}).reward.source


def test_nested_sections_are_laid_over_by_name():
    """A section within a section keeps what was not given too."""
    own = build_config({"objective": {"mismatch": {"cap": 3.0, "limit": 0.5}}}, source="test")
    found = TrainRequest.model_validate({"objective": {"mismatch": {"limit": 0.25}}}).over(own)
    assert (3.0, 0.25) == (found.objective.mismatch.cap, found.objective.mismatch.limit)


def test_what_does_not_go_together_is_refused():
    """A request is checked with the workspace's settings, not by itself alone."""
    with pytest.raises(ConfigError, match=r"correction must be token or sequence.*the request of this run"):
        asked(rollout={"engine": "vllm", "staleness": 1})


def test_evaluation_takes_what_it_is_given():
    """Settings of an evaluation are laid over the workspace's likewise."""
    own = build_config({"evaluate": {"samples": 7, "max_prompts": 5}}, source="test")
    found = settings_with(own, evaluate=EvaluateConfig.model_validate({"pass_at": [1, 3]})).evaluate
    assert (7, (1, 3), 5) == (found.samples, found.pass_at, found.max_prompts)
    few = EvaluateConfig.model_validate({"samples": 4})
    with pytest.raises(ConfigError, match="'pass_at' must be at most samples=4"):
        settings_with(build_config({"evaluate": {"samples": 8, "pass_at": [8]}}, source="test"), evaluate=few)
