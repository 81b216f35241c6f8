"""What `rangeline evaluate --benchmarks` and `rangeline rescore` say on the terminal."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from flows.cli_manners import manner, say, say_object
from rangeline.errors import ConfigError


def words(text: str | None) -> tuple[str, ...]:
    """Return the words of a comma-separated option, without blanks."""
    return tuple(word.strip() for word in (text or "").split(",") if word.strip())


def counts(text: str | None) -> tuple[int, ...] | None:
    """Return the numbers of a comma-separated option, None where it is not given.

    Raises
    ------
    ConfigError
        When one is no whole number above 0.
    """
    if text is None:
        return None
    bad = [word for word in words(text) if not word.isdecimal() or int(word) < 1]
    if bad or not words(text):
        msg = f"'--k' must be whole numbers above 0 with commas between; got '{text}'. Give such as --k 1,2,4."
        raise ConfigError(msg)
    return tuple(int(word) for word in words(text))


def evaluate_on_benchmarks(root: Path, policies: tuple[str, ...], asked: Mapping[str, Any]) -> None:
    """Run the flow on what was asked and print the table, the folders and the paired change."""
    from flows.evaluate_benchmarks import BenchmarkRequest, benchmark

    given = {name: value for name, value in asked.items() if value is not None}
    try:
        request = BenchmarkRequest(workspace=str(root), policies=policies or ("warmup",), **given)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        msg = f"'{name}' is not valid: {first['msg']}; got {first['input']!r:.80}. Correct the option."
        raise ConfigError(msg) from error
    outcome = benchmark(request)
    if manner().as_json:
        for result in outcome["results"]:
            for name, item in result.results.items():
                found = {"policy": result.label, "benchmark": name, "folder": item.folder, "metrics": item.metrics}
                say_object(found)
        say_object({"table": outcome["table"], "paired": outcome["paired"]})
        return
    say(outcome["table"].read_text(encoding="utf-8"))
    for result in outcome["results"]:
        for name, item in result.results.items():
            say(f"{result.label} on {name}: {item.folder}")
    for name, change in outcome["paired"].items():
        interval = "" if change.lower is None else f" [{change.lower:+.3f}, {change.upper:+.3f}]"
        say(
            f"{name}: {change.mean:+.3f}{interval} from first to last policy over {change.num_shared} shared problems, "
            f"{change.num_better} better and {change.num_worse} worse; sign-flip test of the mean "
            f"p = {change.mean_p_value:.4f}, sign test p = {change.p_value:.4f}"
        )
    say(f"table: {outcome['table']}")


def say_rescored(found: Any) -> None:
    """Print what the present checkers read otherwise."""
    if manner().as_json:
        say_object(found)
        return
    for change in found.changes:
        fields = {name: pair for name, pair in change.items() if name not in ("prompt_id", "sample")}
        told = ", ".join(f"{name} {was!r:.60} -> {now!r:.60}" for name, (was, now) in fields.items())
        say(f"{change['prompt_id']} sample {change['sample']}: {told}")
    for name, (was, now) in found.moved.items():
        say(f"{name}: {_number(was)} -> {_number(now)}")
    say(f"{len(found.changes)} of {found.num_completions} completions changed; {found.folder}")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
