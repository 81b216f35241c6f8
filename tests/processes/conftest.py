"""A tiny policy on disk, and how to start it in one process or two."""

import pytest
import tiny
from two_processes import SETTINGS

from rangeline.policy.processes import PolicyProcesses
from rangeline.policy.worker import Placement, PolicyWorker


@pytest.fixture(scope="session")
def policy_folder(tmp_path_factory):
    """Return the folder of a small random policy."""
    return tiny.save_model(tmp_path_factory.mktemp("policy"))


@pytest.fixture
def start(policy_folder, tmp_path):
    """Start a policy in so many processes; all are closed at the end."""
    opened = []

    def make(count, *, settings=SETTINGS, lora=None, accelerate_config=None):
        kind = PolicyWorker if count == 1 else PolicyProcesses
        more = {} if count == 1 else {"accelerate_config": accelerate_config}
        policy = kind.load(
            str(policy_folder),
            settings=settings,
            placement=Placement(num_processes=count, lora=lora, cpu=True),
            cache_dir=tmp_path / "cache",
            seed=3,
            **more,
        )
        opened.append(policy)
        return policy

    yield make
    for policy in opened:
        policy.close()
