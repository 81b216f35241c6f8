"""Laws of how processes are asked for: the environment of Accelerate's own files."""

from pathlib import Path

import pytest

from rangeline.errors import ConfigError
from rangeline.policy.launch import launch_environment

FOLDER = Path(__file__).resolve().parents[3] / "deploy" / "accelerate"


def test_no_file_is_data_parallel():
    """Without a file nothing is sharded."""
    assert not any("FSDP" in name or "DEEPSPEED" in name for name in launch_environment(2, None))


@pytest.mark.parametrize(
    ("name", "variables"),
    [
        ("ddp", {}),
        ("fsdp2", {"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2", "FSDP_OFFLOAD_PARAMS": "false"}),
        ("fsdp2_offload", {"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2", "FSDP_OFFLOAD_PARAMS": "true"}),
        ("zero2", {"ACCELERATE_USE_DEEPSPEED": "true", "ACCELERATE_DEEPSPEED_ZERO_STAGE": "2"}),
        ("zero2_offload", {"ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE": "cpu"}),
        ("zero3", {"ACCELERATE_USE_DEEPSPEED": "true", "ACCELERATE_DEEPSPEED_ZERO_STAGE": "3"}),
        ("zero3_offload", {"ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_DEVICE": "cpu"}),
    ],
)
def test_every_file_says_what_its_name_says(name, variables):
    """Each file of deploy/accelerate is read by Accelerate's own launcher and asks for its kind of training."""
    found = launch_environment(2, FOLDER / f"{name}.yaml")
    assert variables == {key: found[key] for key in variables}
    assert "no" == found["ACCELERATE_MIXED_PRECISION"]


def test_another_number_of_processes_in_the_file_is_refused(tmp_path):
    """The count of the settings and of the file must agree."""
    path = tmp_path / "eight.yaml"
    path.write_text((FOLDER / "ddp.yaml").read_text().replace("num_processes: -1", "num_processes: 8"))
    with pytest.raises(ConfigError, match=r"'processes.count' must be the number of .*, 8; got 2"):
        launch_environment(2, path)
    assert launch_environment(8, path)


@pytest.mark.parametrize("text", ["- a\n", "distributed_type: NOTHING\ncompute_environment: LOCAL_MACHINE\n"])
def test_file_of_another_kind_is_refused(tmp_path, text):
    """What Accelerate cannot read is named, and so is a file that is not there."""
    path = tmp_path / "other.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match="must be a configuration of Accelerate; got"):
        launch_environment(2, path)
    with pytest.raises(ConfigError, match=r"'processes.accelerate_config' must be a file; got"):
        launch_environment(2, tmp_path / "absent.yaml")
