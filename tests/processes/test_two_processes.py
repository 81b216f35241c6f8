"""Laws of two processes on the CPU (gloo): the same training as one, and no process is left behind."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest
import torch
from gradient_rank import AGGREGATIONS, gradients
from safetensors.torch import load_file
from two_processes import PLAN, PROMPTS, ROOT, SETTINGS, iterate, torchrun

from rangeline.errors import BadInputError, CheckpointError, ToolError
from rangeline.policy.adapter import LoraSettings
from rangeline.policy.supervised import SupervisedRow
from rangeline.policy.trainer import UpdateSettings

pytestmark = pytest.mark.slow

FSDP2 = ROOT / "deploy" / "accelerate" / "fsdp2.yaml"
ENDS_WITHIN_S = 20.0


def weights(policy):
    """Return copies of a policy's weights by name."""
    return {name: value.detach().clone() for name, value in policy.model.state_dict().items()}


def largest_gap(one, two):
    """Return the largest difference of any two weights."""
    assert set(one) == set(two)
    return max(float((one[name] - two[name]).abs().max()) for name in one)


def is_alive(pid):
    """Tell whether a process runs; a zombie does not."""
    try:
        with open(f"/proc/{pid}/stat") as handle:  # noqa: PTH123
            return handle.read().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def all_end(pids, within_s=ENDS_WITHIN_S):
    """Wait until none of the processes lives; tell whether that came in time."""
    deadline = time.monotonic() + within_s
    while any(is_alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.1)
    return not any(is_alive(pid) for pid in pids)


@pytest.mark.parametrize(
    ("environ", "precision", "rel"),
    [({}, "no", 1e-6), ({"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2"}, "no", 1e-6), ({}, "bf16", 0.03)],
    ids=["ddp", "fsdp2", "ddp in bfloat16"],
)
def test_gradient_of_two_processes_is_that_of_one(tmp_path, environ, precision, rel):
    """Every aggregation: the sum over ranks is the whole gradient, to 1e-6 of its norm or 3 % in bfloat16."""
    wrap = {"FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP", "FSDP_CPU_RAM_EFFICIENT_LOADING": "false"}
    wrap["FSDP_RESHARD_AFTER_FORWARD"] = "true"
    torchrun(ROOT / "tests" / "gradient_rank.py", tmp_path, precision, **(wrap | environ if environ else {}))
    expected = gradients(mixed_precision=precision)
    for aggregation in AGGREGATIONS:
        actual = load_file(tmp_path / f"{aggregation}.safetensors")
        whole, report = expected[aggregation]
        for name in ("loss", "mismatch_mean", "entropy"):
            assert getattr(report, name) == pytest.approx(float(actual[name]), rel=rel)
        norm = torch.cat([value.flatten() for value in whole.values()]).norm()
        gap = torch.cat([(value - actual[name]).flatten() for name, value in whole.items()]).norm()
        assert norm > 0
        assert float(gap / norm) < rel


@pytest.mark.parametrize("accelerate_config", [None, FSDP2], ids=["ddp", "fsdp2"])
def test_two_processes_train_as_one(start, tmp_path, accelerate_config):
    """Rollouts are the same, weights agree to 1e-4 after five steps, and a checkpoint of two goes on in one."""
    one, two = start(1), start(2, accelerate_config=accelerate_config)
    for iteration in (1, 2):
        expected, alone = iterate(one, iteration)
        actual, together = iterate(two, iteration)
        assert expected.token_ids_N == actual.token_ids_N
        assert expected.prompt_id_N == actual.prompt_id_N
        assert alone.loss == pytest.approx(together.loss, rel=1e-3, abs=1e-6)
        assert alone.grad_norm == pytest.approx(together.grad_norm, rel=1e-3)
        assert (alone.num_tokens, alone.active_rows) == (together.num_tokens, together.active_rows)
    row = SupervisedRow(prompt_ids=(4, 5), target_ids=(6, 2))
    assert one.supervised_step([row]).loss == pytest.approx(two.supervised_step([row]).loss, rel=1e-3)
    assert one.policy_version == two.policy_version == 3
    two.save(tmp_path / "1", {"iteration": 1})
    assert largest_gap(weights(one), weights(two)) < 1e-4
    back = start(1)
    assert back.restore(tmp_path / "1")["iteration"] == 1
    assert largest_gap(weights(two), weights(back)) == 0
    two.restore(tmp_path / "1")
    iterate(back, 3)
    iterate(two, 3)
    assert largest_gap(weights(two), weights(back)) < 1e-4


def test_adapters_in_two_processes_train_as_in_one(start, tmp_path):
    """Adapters start alike everywhere, the frozen start is the KL reference, and checkpoints hold the adapter."""
    settings, lora = UpdateSettings(learning_rate=1e-2, kl_coefficient=0.1), LoraSettings(rank=4, alpha=8.0)
    one, two = start(1, settings=settings, lora=lora), start(2, settings=settings, lora=lora)
    for iteration in (1, 2):
        expected, alone = iterate(one, iteration)
        actual, together = iterate(two, iteration)
        assert expected.token_ids_N == actual.token_ids_N
        assert alone.kl == pytest.approx(together.kl, rel=1e-3, abs=1e-6)
    assert together.kl > 0
    for name, policy in (("one", one), ("two", two)):
        policy.save(tmp_path / name, {"iteration": 2})
    for file in ("policy/model.safetensors", "adapter/adapter_model.safetensors"):
        assert largest_gap(load_file(tmp_path / "one" / file), load_file(tmp_path / "two" / file)) < 1e-4


def test_error_of_one_rank_is_the_error_of_the_run(start, tmp_path):
    """An error of ours keeps its class and names the rank; all processes end, and later calls say the same."""
    policy = start(2)
    pids = policy.pids
    with pytest.raises(CheckpointError, match=r"must exist; got no such file.*policy process [01] of 2"):
        policy.restore(tmp_path / "nothing")
    assert all_end(pids)
    with pytest.raises(CheckpointError, match="must exist"):
        policy.generate(PROMPTS, PLAN, iteration=1, purpose="policy")


@pytest.mark.parametrize("victim", [0, 1, 2], ids=["launcher", "rank 0", "rank 1"])
def test_killed_process_ends_all_with_one_error(start, victim):
    """After kill -9 of the launcher or a rank the next call fails once and clearly, and nothing is left."""
    policy = start(2)
    iterate(policy, 1)
    pids = policy.pids
    os.kill(pids[victim], signal.SIGKILL)
    assert all_end(pids)
    said = "their launcher" if victim == 0 else f"process {victim - 1}"
    with pytest.raises(
        ToolError, match=f"2 policy processes must live as long as the run; got {said} ended by signal 9"
    ):
        iterate(policy, 2)


def test_rank_killed_at_work_ends_all_with_one_error(start):
    """A rank that dies while another waits for it in an exchange is one error, and nothing is left."""
    policy = start(2)
    pids = policy.pids
    killer = threading.Timer(0.5, os.kill, (pids[2], signal.SIGKILL))
    killer.start()
    with pytest.raises(ToolError, match=r"2 policy processes must live as long as the run; got process [01]"):
        _ = [iterate(policy, iteration) for iteration in range(10_000)]
    killer.join()
    assert all_end(pids)


def test_killed_run_leaves_no_process(policy_folder, tmp_path):
    """After kill -9 of the run itself the launcher and every rank end by themselves."""
    code = (
        "import sys, time; from pathlib import Path; from two_processes import SETTINGS\n"
        "from rangeline.policy.processes import PolicyProcesses; from rangeline.policy.worker import Placement\n"
        "policy = PolicyProcesses.load(sys.argv[1], settings=SETTINGS, cache_dir=Path(sys.argv[2]),"
        " placement=Placement(num_processes=2, cpu=True))\n"
        "print(*policy.pids, flush=True); time.sleep(600)"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}
    command = [sys.executable, "-c", code, str(policy_folder), str(tmp_path)]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as run:
        pids = [int(word) for word in run.stdout.readline().split()]
        assert len(pids) == 3
        assert all(is_alive(pid) for pid in pids)
        run.kill()
        assert all_end(pids)


def test_bad_start_is_one_error(start):
    """What a rank refuses while it loads is the error of the start."""
    with pytest.raises(BadInputError, match=r"'lora.targets' must name layers"):
        start(2, settings=SETTINGS, lora=LoraSettings(rank=2, alpha=4.0, targets=("nothing",)))
