"""What `rangeline audit` and `rangeline rollback` say on the terminal."""

import json
from pathlib import Path
from typing import get_args

import typer

from flows.cli_manners import manner, say, say_object, say_result
from rangeline.errors import ConfigError, LineageError


def audit_backwards(root: Path, target: str) -> None:
    """Verify a target and print the tree.

    Raises
    ------
    LineageError
        When a byte differs; names the first.
    """
    from tasks.lineage import audit_target

    lines, failures, matching = audit_target.fn(str(root), target)
    differing = [{"path": item.path, "detail": item.detail} for item in failures]
    if manner().as_json:
        say_object({"target": target, "matching": matching, "differing": differing})
    say("\n".join(lines))
    if failures:
        first = failures[0]
        msg = f"'{first.path}': {first.detail}; {len(failures)} files differ, {matching} match. Restore it from DVC."
        raise LineageError(msg)
    say(f"{matching} files match.")


def say_reach(root: Path, what: str, drawing: str, output: Path | None) -> None:
    """Print or write what a prompt, calibration row, judge or file reached.

    Raises
    ------
    ConfigError
        For an unknown drawing.
    """
    from tasks.audits import Drawing, draw_reach, reach_target

    _require_word("--as", drawing, get_args(Drawing))
    drawing = "json" if manner().as_json and output is None else drawing
    emit(draw_reach(reach_target.fn(str(root), what), drawing), output)  # type: ignore[arg-type]


def say_export(root: Path, kind: str, output: Path | None) -> None:
    """Print or write the lineage in the form of another tool.

    Raises
    ------
    ConfigError
        For an unknown form.
    """
    from tasks.audits import Export, export_lineage

    _require_word("export", kind, get_args(Export))
    emit(export_lineage(str(root), kind), output)  # type: ignore[arg-type]


def say_rollback(root: Path, reason: str) -> None:
    """Put the former champion back and print both versions."""
    from tasks.nights import roll_back

    lost, got = roll_back(root, reason)
    say_result(
        {"champion": got, "former": lost, "reason": reason},
        f"policy version {got} is champion again; version {lost} is not any more: {reason}",
    )


def _require_word(name: str, word: str, known: tuple[str, ...]) -> None:
    if word not in known:
        msg = f"'{name}' must be one of {', '.join(known)}; got '{word}'. Choose one of them."
        raise ConfigError(msg)


def emit(text: str, output: Path | None) -> None:
    """Print a document, or write it to a file and say so."""
    if output is not None:
        output.write_text(text, encoding="utf-8")
        say_result({"file": output}, str(output))
    elif manner().as_json:
        for value in _documents(text):
            say_object(value)
    else:
        typer.echo(text, nl=False)


def _documents(text: str) -> list[object]:
    """Return the JSON documents of a text: one over many lines, or one a line."""
    try:
        return [json.loads(text)]
    except ValueError:
        return [json.loads(line) for line in text.splitlines() if line.strip()]
