"""A tiny policy in one process or two, one iteration of it, and scripts under torchrun."""

import os
import subprocess
import sys
from pathlib import Path

from rangeline.policy.trainer import UpdateSettings
from rangeline.records import Advantages, SamplingPlan
from rangeline.rollout.engine import EncodedPrompt

ROOT = Path(__file__).resolve().parents[1]
PROMPTS = tuple(EncodedPrompt(prompt_id=f"p{i}", token_ids=tuple(range(4, 6 + i))) for i in range(3))
PLAN = SamplingPlan(group_size=3, temperature=1.0, max_tokens=5)
SETTINGS = UpdateSettings(learning_rate=1e-2, micro_batch_tokens=24, updates_per_batch=2)


def iterate(policy, iteration):
    """Sample, credit rollouts by turns, and update."""
    rollouts = policy.generate(PROMPTS, PLAN, iteration=iteration, purpose="policy")
    values = [1.0, -1.0, 0.5] * len(PROMPTS)
    advantages = Advantages(
        prompt_id_N=rollouts.prompt_id_N, value_N=values, active_N=[True] * len(values), estimator="dr_grpo"
    )
    return rollouts, policy.update(policy.batch(rollouts, advantages, max_tokens=5))


def torchrun(script, *arguments, **environ):
    """Run a script in two processes; return its output once it ended well."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1", **environ}
    done = subprocess.run(
        [*command, str(script), *map(str, arguments)], env=env, capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
