"""Laws of serving a model by command."""

import pytest

from flows.cli_vllm import serve_vllm
from rangeline.config import build_config
from rangeline.errors import ConfigError


def test_a_folder_without_a_model_is_refused_before_anything_starts(tmp_path):
    """Without a warmed-up policy, and without a folder that holds a model, nothing is started."""
    with pytest.raises(ConfigError, match=r"'model' must be a folder with config.json .* got '.*policy'"):
        serve_vllm(tmp_path, None, port=8000, sync_root=None, lora=False)
    with pytest.raises(ConfigError, match=r"got '.*other'. Name another"):
        serve_vllm(tmp_path, tmp_path / "other", port=8000, sync_root=None, lora=False)


def test_unknown_engines_are_refused():
    """`--engine` is the setting rollout.engine, which has two values."""
    with pytest.raises(ConfigError, match=r"'rollout.engine' is not valid: Input should be 'transformers' or 'vllm'"):
        build_config({"rollout": {"engine": "sglang"}}, source="command line")
