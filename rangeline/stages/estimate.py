"""Say what a run will take before anything is spent: prompts, rollouts, tokens, judge calls, memory, disk, time.

Counts are exact once the pools are made, and expected ones before; tokens of completions are upper bounds; memory and
time follow `estimate_parts`. What cannot fit is a problem, and whoever calls decides to stop.
"""

import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from rangeline.config import PipelineConfig
from rangeline.judge.coordinates import ChoiceCoordinate, ScoreCoordinate
from rangeline.judge.rubric import Rubric, parse_rubric
from rangeline.provenance.ledger import read_ledger
from rangeline.rollout.model_shape import ModelShape, read_shape
from rangeline.stages.estimate_parts import checkpoint_bytes, measure_speed, memory_parts, work_parts
from rangeline.stages.expected_pools import expected_pools
from rangeline.stages.label_plan import label_limits, label_problems
from rangeline.stages.machine_checks import available_memory
from rangeline.stages.reward_plan import RewardPlan, plan_rewards
from rangeline.stages.workspace import Workspace

GIB = 2**30
_LETTERS_A_TOKEN = 3
"""Fewer than most tokenizers reach on English, so that tokens are rather over- than underestimated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What one command would take."""

    prompts: dict[str, int]
    """By pool."""
    rollouts: dict[str, int]
    """By stage; of training over all iterations."""
    tokens: dict[str, int]
    """`sampled`: completions at their cap. `prompts`, `judged`: read, at about three letters a token."""
    judge_questions: int
    """At most: equal questions are asked once."""
    memory_gib: dict[str, float]
    memory_free_gib: float
    disk_gib: float
    disk_free_gib: float
    seconds: dict[str, float]
    """Rough, by part, over all iterations."""
    measured_iteration_s: float | None
    """Seconds of the newest iteration that was run in this workspace."""
    problems: tuple[str, ...]
    """Why it cannot run as set; empty where nothing stands in the way."""
    notes: tuple[str, ...]


def estimate_run(workspace: Workspace, config: PipelineConfig, *, speed: float | None = None) -> Estimate:
    """Estimate calibration, training and both evaluations of one run.

    Parameters
    ----------
    workspace, config
        Where and how.
    speed
        Operations a second; None measures one matrix product.

    Raises
    ------
    ConfigError
        When the reward settings do not go together.
    ModelLoadError
        When a model's configuration, or the rubric, cannot be read.
    DataContractError
        When a data file cannot be read.
    """
    plan = plan_rewards(config)
    counts, letters = expected_pools(workspace, config)
    rollouts = count_rollouts(config, plan, counts)
    rubric = _rubric(workspace, config) if plan.needs_judge else None
    asked = rubric if rubric and not config.judge.is_synthetic else None
    judged = rollouts["calibrate"] + rollouts["train, judged"]
    prompt_tokens = config.data.max_prompt_tokens or -(-letters // _LETTERS_A_TOKEN)
    questions, question_tokens = questions_of(asked, judged, config.sampling.group_size) if asked else (0, 0)
    cap, sampled = config.sampling.max_tokens, rollouts["calibrate"] + rollouts["train"] + rollouts["evaluate"]
    tokens = {
        "sampled": sampled * cap,
        "prompts": sampled // config.sampling.group_size * prompt_tokens,
        "judged": questions * (prompt_tokens + cap) + question_tokens,
    }
    policy = _shape(config.policy.model, config)
    local = questions > 0 and config.judge.client == "model"
    judge = None
    if local:
        judge = policy if config.judge.model == config.policy.model else _shape(config.judge.model, config)
    on_gpu = torch.cuda.is_available()
    memory = memory_parts(policy, judge, config, prompt_tokens=prompt_tokens, on_gpu=on_gpu)
    free = torch.cuda.mem_get_info()[0] if on_gpu else available_memory()
    work = work_parts(
        policy,
        judge,
        config,
        sampled=(tokens["prompts"], tokens["sampled"]),
        trained=rollouts["train, updated"] * cap
        + rollouts["train, updated"] // config.sampling.group_size * prompt_tokens,
        judged=tokens["judged"],
    )
    reached = speed or measure_speed(config.policy.precision)
    result = Estimate(
        prompts=counts,
        rollouts=rollouts,
        tokens=tokens,
        judge_questions=questions,
        memory_gib={name: value / GIB for name, value in memory.items()},
        memory_free_gib=free / GIB,
        disk_gib=checkpoint_bytes(policy, config) / GIB,
        disk_free_gib=shutil.disk_usage(_nearest(workspace.root)).free / GIB,
        seconds={name: done / (reached * share) for name, (done, share) in work.items()},
        measured_iteration_s=newest_seconds(workspace),
        problems=(),
        notes=(
            *_notes(workspace, config, prompt_tokens, policy),
            *(label_limits(counts, config) if plan.needs_judge else ()),
        ),
    )
    return _with_problems(result, config, policy, needs_judge=plan.needs_judge)


def count_rollouts(config: PipelineConfig, plan: RewardPlan, counts: dict[str, int]) -> dict[str, int]:
    """Return rollouts by stage: no share draws more prompts than its pool has."""
    group, train = config.sampling.group_size, config.train
    own = 1 if plan.is_supervised else group
    policy = min(train.prompts_per_iteration, counts[plan.pool]) * own
    policy += min(train.labelled_prompts, counts["warmup"]) * group
    audit = min(train.audit_prompts, counts["audit"]) * group
    ratio = min(train.ratio_prompts, counts["ratio"]) * group if plan.needs_judge else 0
    calibrate = (counts["source"] + counts["calibration"]) * group if plan.needs_judge else 0
    evaluated = min(config.evaluate.max_prompts, counts["evaluation"])
    return {
        "calibrate": calibrate,
        "train": (policy + audit + ratio) * train.iterations,
        "train, updated": policy * train.iterations,
        "train, judged": (policy + audit + ratio) * train.iterations if plan.needs_judge else 0,
        "evaluate": 2 * evaluated * config.evaluate.samples if config.evaluate.method == "sample" else 0,
    }


def questions_of(rubric: Rubric, rollouts: int, group_size: int) -> tuple[int, int]:
    """Return the questions about so many rollouts, and the tokens of their wording alone.

    Replies that a question lists are asked in both orders. A correction for the prior is asked once a prompt, since it
    shows no completion.
    """
    questions = letters = 0
    for item in rubric.coordinates:
        if not isinstance(item, ChoiceCoordinate | ScoreCoordinate):
            continue
        number = rollouts
        if isinstance(item, ChoiceCoordinate):
            number = len(item.orders) * (rollouts + (rollouts // group_size if item.prior_correction else 0))
        questions += number
        letters += number * (len(rubric.system) + len(item.question))
    return questions, letters // _LETTERS_A_TOKEN


def newest_seconds(workspace: Workspace) -> float | None:
    """Return the seconds of the newest iteration of any run, or None where none was run.

    The ledger's lines say which is the newest, and the times of files only where it knows none of them.
    """
    noted = read_ledger(workspace.root).newest

    def age(path: Path) -> tuple[int, float]:
        known = noted.get(path.relative_to(workspace.root).as_posix())
        return known[1].number if known else 0, path.stat().st_mtime

    newest = max(workspace.runs.glob("*/iterations/*/timings.json"), key=age, default=None)
    if newest is None:
        return None
    parts = json.loads(newest.read_text(encoding="utf-8"))
    return float(sum(parts.get(f"time/{name}_s", 0.0) for name in ("generate", "judge", "bound", "update", "save")))


def _rubric(workspace: Workspace, config: PipelineConfig) -> Rubric | None:
    path = workspace.root / config.judge.rubric
    return parse_rubric(path.read_text(encoding="utf-8"), source=path.name) if path.is_file() else None


def _shape(name: str, config: PipelineConfig) -> ModelShape:
    words = config.data.world.words if config.data.world else 64
    trust = config.policy.trust_remote_code
    return read_shape(name, architecture=config.policy.architecture, vocabulary=words + 4, trust_remote_code=trust)


def _nearest(folder: Path) -> Path:
    return next(path for path in (folder, *folder.parents) if path.exists())


def _notes(workspace: Workspace, config: PipelineConfig, prompt_tokens: int, policy: ModelShape) -> tuple[str, ...]:
    notes = []
    if not (workspace.pools / "manifest.json").is_file():
        notes.append("The pools are not made yet: prompts are expected ones. 'rangeline prepare' makes them exact.")
        if config.data.benchmarks:
            notes.append("Benchmarks are not counted before that.")
    if policy.max_positions and prompt_tokens + config.sampling.max_tokens > policy.max_positions:
        notes.append(f"The longest prompt and completion may exceed the model's {policy.max_positions} positions.")
    if config.rollout.engine == "vllm":
        notes.append("The memory of the vLLM server is not in these numbers.")
    return tuple(notes)


def _with_problems(found: Estimate, config: PipelineConfig, policy: ModelShape, *, needs_judge: bool) -> Estimate:
    needed = sum(found.memory_gib.values())
    problems: list[str] = []

    def refuse(is_bad: bool, text: str) -> None:
        problems.extend([text] if is_bad else [])

    refuse(
        needed > found.memory_free_gib,
        f"memory must hold {needed:.1f} GiB; {found.memory_free_gib:.1f} are free. Lower objective.micro_batch_tokens "
        "or policy.prompts_per_batch, set lora.rank or objective.activation_checkpointing, or take a smaller model",
    )
    refuse(
        found.disk_gib > found.disk_free_gib,
        f"the disk must hold {found.disk_gib:.1f} GiB of checkpoints; {found.disk_free_gib:.1f} are free. Make room, "
        "or lower train.keep_checkpoints",
    )
    refuse(
        policy.max_positions is not None and config.sampling.max_tokens >= policy.max_positions,
        f"sampling.max_tokens must be below the model's {policy.max_positions} positions; got "
        f"{config.sampling.max_tokens}. Lower it",
    )
    if needs_judge:
        problems.extend(label_problems(found.prompts, config))
    if config.judge.client == "server":
        for name, cost in (("calls", found.judge_questions), ("tokens", found.tokens["judged"])):
            budget = getattr(config.judge.budget, name)
            refuse(
                budget is not None and cost > budget,
                f"judge.budget.{name} must cover up to {cost}; got {budget}. Raise it, or ask less",
            )
    return replace(found, problems=tuple(problems))
