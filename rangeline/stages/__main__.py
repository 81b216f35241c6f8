"""Run one data stage in the current workspace: `python -m rangeline.stages NAME`, as `dvc.yaml` does.

Progress goes to standard output as plain lines, `progress LABEL DONE TOTAL`, which the flows turn into bars.
"""

import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rangeline.config import PipelineConfig
from rangeline.errors import RangelineError
from rangeline.orphans import watch_parent
from rangeline.stages.workspace import Workspace, open_workspace

_LINE_EVERY_S = 1.0


class LineProgress:
    """Writes a progress line when a step is finished, at most one a second for each label."""

    def __init__(self) -> None:
        self._last: dict[str, float] = {}

    def __call__(self, label: str, done: int, total: int) -> None:
        """Write the line if it is time, and always for the last step."""
        now = time.monotonic()
        if done == total or now - self._last.get(label, -_LINE_EVERY_S) >= _LINE_EVERY_S:
            self._last[label] = now
            sys.stdout.write(f"progress {label.replace(' ', '_')} {done} {total}\n")
            sys.stdout.flush()


def _stages() -> dict[str, Callable[[Workspace, PipelineConfig, LineProgress], None]]:
    # Imported here: a data stage need not wait for torch.
    from rangeline.stages import data

    def calibrate(workspace: Workspace, config: PipelineConfig, progress: LineProgress) -> None:
        from rangeline.stages import calibration

        calibration.calibrate(workspace, config, progress)

    def anchors(workspace: Workspace, config: PipelineConfig, progress: LineProgress) -> None:
        from rangeline.stages import anchors as module

        module.anchors(workspace, config, progress)

    def metric_head(workspace: Workspace, config: PipelineConfig, progress: LineProgress) -> None:
        from rangeline.stages import anchors as module

        module.metric_head(workspace, config, progress)

    def warmup(workspace: Workspace, config: PipelineConfig, progress: LineProgress) -> None:
        from rangeline.stages import warmup as module

        module.warmup(workspace, config, progress)

    return {
        "generate": lambda workspace, config, _: data.generate(workspace, config),
        "ingest": lambda workspace, config, _: data.ingest(workspace, config),
        "split": lambda workspace, config, _: data.split(workspace, config),
        "warmup": warmup,
        "calibrate": calibrate,
        "anchors": anchors,
        "metric_head": metric_head,
    }


def main(arguments: Sequence[str]) -> int:
    """Run the named stage; return the exit code of its error class."""
    stages = _stages()
    if len(arguments) != 1 or arguments[0] not in stages:
        sys.stderr.write(f"usage: python -m rangeline.stages {{{','.join(stages)}}}\n")
        return 2
    watch_parent()
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    try:
        workspace, config = open_workspace(Path.cwd())
        stages[arguments[0]](workspace, config, LineProgress())
    except RangelineError as error:
        sys.stderr.write(f"error: {type(error).__name__}: {error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
