"""Which checkpoints of a run are kept: the newest ones, and the one that did best by a metric; pure bookkeeping.

What is kept follows from the saved iterations and their metrics alone, never from what happens to lie on the disk, so
that a resumed run keeps, retires and writes down the same. The note of an iteration goes into its manifest: the audit
of a checkpoint that is gone can say when it was retired, and why.
Nothing is divided. Equal values keep the earlier checkpoint as the best, so that a plateau retires nothing.
"""

import os
import shutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from rangeline.errors import CheckpointError
from rangeline.policy.checkpoint import PARTIAL, REPLACED, is_complete

NOTE = "retention.json"
"""Name of an iteration's note."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """What is kept once an iteration has its checkpoint."""

    newest: tuple[int, ...] = ()
    """Iterations kept because they are the last ones, ascending."""
    best: int | None = None
    """Iteration kept because it did best; None while none has the metric, or no best is wanted."""
    metric: str | None = None
    """What the best is the best by; larger is better. None keeps no best."""
    value: float | None = None
    """Its value at the best."""
    retired: tuple[int, ...] = ()
    """Iterations whose checkpoints are given up here, ascending."""

    @property
    def kept(self) -> tuple[int, ...]:
        """Every kept iteration, ascending."""
        return tuple(sorted({*self.newest, *([] if self.best is None else [self.best])}))

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "newest": list(self.newest),
            "best": self.best,
            "metric": self.metric,
            "value": self.value,
            "kept": list(self.kept),
            "retired": list(self.retired),
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        """Read what `to_json` gave."""
        return cls(
            newest=tuple(stored["newest"]),
            best=stored["best"],
            metric=stored["metric"],
            value=stored["value"],
            retired=tuple(stored["retired"]),
        )


def plan_retention(
    before: Retention, number: int, *, keep_last: int, metric: str | None, value: float | None
) -> Retention:
    """Say what is kept and what is retired once an iteration has its checkpoint.

    Parameters
    ----------
    before
        Of the saved iteration before this one; empty for the first.
    number
        This iteration.
    keep_last
        Newest checkpoints to keep, at least 1.
    metric
        What the best is chosen by; None keeps no best. A metric other than before starts the choice anew, for values
        of two metrics cannot be compared.
    value
        This iteration's value; None where it was not measured, which never makes it the best.

    Raises
    ------
    CheckpointError
        When `keep_last` is below 1.
    """
    if keep_last < 1:
        msg = f"'keep_last' must be at least 1; got {keep_last} (iteration {number}). Keep the newest checkpoint."
        raise CheckpointError(msg)
    newest = (*(item for item in before.newest if item < number), number)[-keep_last:]
    best, highest = (before.best, before.value) if metric is not None and before.metric == metric else (None, None)
    if metric is not None and value is not None and (highest is None or value > highest):
        best, highest = number, value
    planned = Retention(newest=newest, best=best, metric=metric, value=highest)
    gone = set(before.kept) - set(planned.kept) - {number}
    return Retention(newest=newest, best=best, metric=metric, value=highest, retired=tuple(sorted(gone)))


def prune(root: Path, keep: Collection[str]) -> tuple[Path, ...]:
    """Delete every complete checkpoint but the named ones, and the unfinished work of stopped writers.

    One writer a root: call it only from the process that writes there.

    Parameters
    ----------
    root
        Folder of checkpoints.
    keep
        Names of the folders that stay; at least one of them must be a complete checkpoint.

    Returns
    -------
    tuple of Path
        What was deleted. Folders that are incomplete under their final name are kept, for a person to look at.

    Raises
    ------
    CheckpointError
        When nothing complete would be left; nothing is deleted then.
    """
    folders = sorted(path for path in root.glob("*") if path.is_dir())
    leftover = [path for path in folders if PARTIAL in path.name or REPLACED in path.name]
    complete = [path for path in folders if path not in leftover and is_complete(path)]
    retired = [path for path in complete if path.name not in keep]
    if retired and len(retired) == len(complete):
        msg = f"'keep' must name a complete checkpoint; got {sorted(keep)} ('{root}'). Keep the newest one."
        raise CheckpointError(msg)
    for path in leftover:
        shutil.rmtree(path)
    for path in retired:
        # Renamed first: killed in between, it is unfinished work to clear, not a checkpoint that lacks files.
        doomed = path.with_name(f"{path.name}{REPLACED}{os.getpid()}")
        path.rename(doomed)
        shutil.rmtree(doomed)
    return (*leftover, *retired)
