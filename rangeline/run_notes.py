"""What a run wrote down of itself: which checkpoints were given up and why, and how its sittings went on."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rangeline.errors import LineageError
from rangeline.lineage import read_manifest

_NEEDED = {"kept", "retired", "best", "metric", "value"}


def _notes(iterations: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield what each saved iteration says of the checkpoints that are kept, in order.

    A note that cannot be read is passed over: the iteration's manifest tells that it changed.
    """
    for path in sorted(iterations.glob("[0-9]*/retention.json")):
        try:
            note = json.loads(path.read_text(encoding="utf-8"))
            if note.keys() >= _NEEDED:
                yield int(path.parent.name), note
        except (ValueError, AttributeError):
            continue


def why_absent(checkpoint: Path) -> tuple[bool, str]:
    """Say why a checkpoint is gone.

    Parameters
    ----------
    checkpoint
        Folder of a run's checkpoint that is not there.

    Returns
    -------
    bool
        True where retention gave it up; where the run kept no notes of retention, nobody can say and it is believed.
    str
        When it was given up and what was kept instead, or that nothing explains its absence.
    """
    noted = False
    for by, note in _notes(checkpoint.parent.parent / "iterations"):
        if f"{by:06d}" < checkpoint.name:
            continue
        noted = True
        if checkpoint.name in {f"{number:06d}" for number in note["retired"]}:
            best = "" if note["best"] is None else f", best by {note['metric']}: {note['best']}"
            kept = ", ".join(map(str, note["kept"]))
            return True, f"retired by retention after iteration {by}, which kept {kept}{best}; its hashes are kept"
    if noted:
        return False, "missing, and no iteration retired it; its hashes are kept"
    return True, "pruned by retention, of which this run kept no notes; its hashes are kept"


def run_facts(iteration: Path) -> tuple[str, ...]:
    """Return what a person should know of the run of a checkpoint: what was kept, and how sittings went on.

    Parameters
    ----------
    iteration
        Folder of the checkpoint's iteration.
    """
    lines = []
    for by, note in _notes(iteration.parent):
        if f"{by:06d}" == iteration.name:
            best = "none" if note["best"] is None else f"{note['best']} by {note['metric']} {note['value']:.4g}"
            lines.append(f"retention kept {', '.join(map(str, note['kept']))}; best {best}")
    for path in sorted((iteration.parent.parent / "sittings").glob("[0-9]*.json")):
        try:
            facts = read_manifest(path).facts
            passed = "".join(f"; passed over {reason}" for reason in facts["passed_over"])
            if facts["resumed_after"] or passed:
                lines.append(f"sitting {facts['sitting']} went on after iteration {facts['resumed_after']}{passed}")
        except (LineageError, KeyError, TypeError):
            lines.append(f"sitting {path.stem} cannot be read: it was changed")
    return tuple(lines)
