"""The oracle: true rewards of unlabelled prompts of a word world, for looking behind the intervals and nothing else.

It runs after an iteration's update, on what that update was made from, and leaves `oracle.json`, which only the metrics
read. Coverage is the share of policy rollouts whose truth lies in its interval; a credit flip is a rollout whose
advantage has another sign than the midpoint's, and it is right where the sign is that of the true advantage.

Shapes: N rollouts flat.
"""

from typing import Any

import numpy as np

from rangeline.conformal.coverage import covered_N
from rangeline.evaluation.comparison_statistics import count_flips
from rangeline.lineage import write_json
from rangeline.records import FloatArray, RolloutSet
from rangeline.stages.iteration import Iteration
from rangeline.stages.iteration_manifest import JUDGED
from rangeline.stages.tables import read_intervals, read_rollouts, read_table
from rangeline.suites.candidate_choice import CandidateChoice, candidates_of
from rangeline.suites.candidate_world import World


def true_rewards(world: World, iteration: Iteration, share: str, rollouts: RolloutSet) -> FloatArray:
    """Return the true reward of every rollout of a share; NaN where it was cut off before an answer, 0 without one."""
    suite, rows = CandidateChoice(), {row.prompt_id: row for row in iteration.rows[share]}
    rewards = {prompt_id: world.rewards(candidates_of(rows[prompt_id])) for prompt_id in set(rollouts.prompt_id_N)}
    truth_N = np.full(len(rollouts), np.nan)
    for i, prompt_id in enumerate(rollouts.prompt_id_N):
        truncated = rollouts.finish_reason_N[i] == "length"
        answer = suite.extract(rollouts.completion_N[i], rows[prompt_id], truncated=truncated).value
        if answer is not None or not truncated:
            truth_N[i] = rewards[prompt_id].get(answer or "", 0.0)
    return truth_N


def observe(world: World, iteration: Iteration) -> None:
    """Compare an iteration's policy intervals and advantages with the truth; write `oracle.json`."""
    folder = iteration.folder
    rollouts = read_rollouts(folder / "policy_rollouts.parquet")
    truth_N = true_rewards(world, iteration, "policy", rollouts)
    # Where a method trains on other rewards, it is still the judge's intervals that are to cover the truth.
    judged = folder / JUDGED
    intervals = read_intervals(judged if judged.is_file() else folder / "policy_intervals.parquet")
    covered, valid = covered_N(intervals, truth_N)
    credit = read_table(folder / "advantages.parquet")
    ours, midpoint = (credit[name].to_numpy() for name in ("advantage", "midpoint"))
    flips = count_flips(ours, midpoint, truth_N, rollouts.prompt_id_N)
    content: dict[str, Any] = {
        "oracle/coverage": float(covered[valid].mean()) if valid.any() else None,
        "oracle/mean_reward": float(truth_N[valid].mean()) if valid.any() else None,
        "oracle/best_share": float((truth_N[valid] == 1).mean()) if valid.any() else None,
        "oracle/num_judged": int(valid.sum()),
        "oracle/num_covered": int(covered.sum()),
        "oracle/flips": flips.num_flips,
        "oracle/flips_right": flips.num_agree,
        "oracle/flips_wrong": flips.num_disagree,
    }
    write_json(folder / "oracle.json", content)
