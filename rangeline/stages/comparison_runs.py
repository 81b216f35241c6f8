"""Where a comparison's runs lie: equal settings give one folder, so that a finished run is found again."""

from dataclasses import dataclass
from pathlib import Path

from rangeline.lineage import digest_json
from rangeline.stages.comparison_plan import RunPlan
from rangeline.stages.workspace import Workspace

RESULT = "result.json"
TIMINGS = "timings.json"


_GIVING_UP = ("max_silent_iterations", "on_alarm", "keep_checkpoints", "keep_best", "completions")
"""They say when a run is given up and what is kept of it; a run that reached its end is the same with any others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Looks:
    """How runs are looked at."""

    every: int
    validation_share: float
    keep_files: bool
    scratch: Path | None = None
    """Folder for the files that go once a run is finished; None leaves them with the run."""


def run_name(run: RunPlan, looks: Looks) -> str:
    """Return the name of a run's folder: equal settings give one name, so that a finished run is found again."""
    config = run.config.model_dump(mode="json")
    config["train"] = {name: value for name, value in config["train"].items() if name not in _GIVING_UP}
    settings = {
        "config": config,
        "rewards": run.method.rewards,
        "role": run.role,
        "looks": [looks.every, looks.validation_share],
    }
    return f"{run.method.name}-{digest_json(settings)[:8]}"


def result_path(workspace: Workspace, run: RunPlan, looks: Looks) -> Path:
    """Return the file that is there once a run is complete."""
    return workspace.run(run_name(run, looks)) / RESULT
