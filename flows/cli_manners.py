"""How every command speaks: options before the command, lines for people, lines for programs."""

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, is_dataclass
from numbers import Integral, Real

import typer

from rangeline.errors import ConfigError, RangelineError


@dataclass(frozen=True, slots=True)
class Manner:
    """What was said before the command's name."""

    verbose: bool = False
    """Log lines of the project's own details, and warnings of the tools."""
    as_json: bool = False
    """Standard output holds JSON objects, one a line, and nothing else."""
    quiet: bool = False
    """Only warnings and results."""


_MANNER: ContextVar[Manner] = ContextVar("manner", default=Manner())  # noqa: B039 - frozen
"""Of the command that runs; set anew by each."""


def manner() -> Manner:
    """Return how the running command should speak."""
    return _MANNER.get()


def take_manner(*, verbose: bool, as_json: bool, quiet: bool = False) -> None:
    """Keep how to speak for the command, and let the tools speak too where it is verbose."""
    _MANNER.set(Manner(verbose=verbose, as_json=as_json, quiet=quiet))
    if verbose:
        for name, level in (("MLFLOW_LOGGING_LEVEL", "INFO"), ("PREFECT_LOGGING_LEVEL", "INFO")):
            os.environ.setdefault(name, level)
        os.environ.setdefault("TRANSFORMERS_VERBOSITY", "info")


def say(text: str) -> None:
    """Print a line for people: on standard output, or on standard error where a program reads that."""
    typer.echo(text, err=manner().as_json)


def say_table(rows: Sequence[tuple[str, str]]) -> None:
    """Print a closing table, or one JSON object of it."""
    if manner().as_json:
        typer.echo(json.dumps(dict(rows), ensure_ascii=False))
        return
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        typer.echo(f"  {name:<{width}}  {value}")


def say_object(value: object) -> None:
    """Print one JSON object, on one line; a number that is not known is null."""
    typer.echo(json.dumps(_plain(value), ensure_ascii=False, allow_nan=False))


def say_result(value: object, text: str) -> None:
    """Print a result: its lines where a person reads, one JSON object where a program does."""
    if manner().as_json:
        say_object(value)
    else:
        typer.echo(text)


def _plain(value: object) -> object:
    """Return records as mappings, paths as texts, and numbers that are not finite as None."""
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value) if math.isfinite(value) else None
    return str(value)


def require_answerable(on_alarm: str) -> None:
    """Require a Prefect page where a run may pause for a person: a command's own server has none to answer on.

    Raises
    ------
    ConfigError
        When the run would wait for nobody.
    """
    if on_alarm == "pause" and not os.environ.get("PREFECT_API_URL"):
        msg = (
            "'PREFECT_API_URL' must name a Prefect server with train.on_alarm=pause, so that somebody can answer on "
            "its page; got nothing. Start 'rangeline serve' and export its address, or set train.on_alarm to continue, "
            "recalibrate or stop."
        )
        raise ConfigError(msg)


@contextmanager
def friendly(*, debug: bool) -> Iterator[None]:
    """Turn an error of ours into two lines and its exit code: what is wrong, and where it is explained."""
    try:
        yield
    except RangelineError as error:
        if debug:
            raise
        typer.secho(f"error: {error}", fg="red", err=True)
        name = type(error).__name__
        typer.secho(f"{name} is explained in docs/errors.md; --debug shows the traceback", dim=True, err=True)
        raise typer.Exit(error.exit_code) from error
    except KeyboardInterrupt as error:
        typer.secho("interrupted: what was complete is kept, and the same command goes on from there", err=True)
        raise typer.Exit(130) from error
