"""The process that does what may hang: compare expressions, evaluate them, ask a generator's own scorer.

One JSON request a line comes in, one JSON reply a line goes out.

It ends by itself when its input closes or its parent is another than at the start, and is killed by its own alarm when
one comparison outlasts the wall clock, so that a parent that died meanwhile leaves nothing behind. Its memory is
capped. Expressions go to a grammar, never to `eval`; what a generator's scorer does with an answer is its own.
"""

import json
import os
import resource
import select
import signal
from collections.abc import Iterator
from typing import Any

from rangeline.suites.expression_rules import assigned_value, nodes_equal, require_readable
from rangeline.suites.expression_structure import read_structure
from rangeline.suites.expression_text import tidy_expression
from rangeline.suites.expression_values import UndecidedError, UnreadableError, parse_value, real_value

MEMORY_BYTES = 4 * 1024**3
GRACE_S = 5
"""Seconds after the wall clock of the parent at which the process ends itself."""
_LOOK_S = 2.0
_FAILURES = (
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    NotImplementedError,
    RecursionError,
    TypeError,
    ValueError,
)
"""What sympy and its parsers raise on texts of strangers that they cannot handle; seen in fuzzing, all of them.

None becomes a 0: a reference is told as unreadable, a comparison as missing with the error's name. Anything else ends
the process, which the parent reports as a crash.
"""


def compare_texts(answer: str, reference: str) -> tuple[bool | None, str]:
    """Return whether two answers are equal, and why where that cannot be said.

    Parameters
    ----------
    answer, reference
        Texts as written.

    Returns
    -------
    tuple
        True, False or None, and a reason.
    """
    try:
        wanted = read_structure(tidy_expression(reference))
        require_readable(wanted)
    except (UnreadableError, *_FAILURES):
        return None, "unreadable reference"
    try:
        return nodes_equal(read_structure(tidy_expression(answer)), wanted), ""
    except UnreadableError:
        return False, "answer is no expression"
    except UndecidedError:
        return None, "undecided"
    except _FAILURES as error:
        return None, f"comparison failed: {type(error).__name__}"


def evaluate_text(text: str) -> tuple[str | None, str]:
    """Return the decimal value of a constant expression in 30 digits; None with a reason where it has none."""
    try:
        node = read_structure(tidy_expression(text))
        value = parse_value(assigned_value(node).text) if assigned_value(node).kind in ("value", "percent") else None
        number = None if value is None else real_value(value)
    except (UnreadableError, *_FAILURES):
        return None, "no number"
    return (number, "") if number is not None else (None, "no number")


def score_generated(spec: dict[str, Any], question: str, answer: str) -> tuple[float | None, str]:
    """Return the score of an answer by the generator of its problem, which is at hand or made again from its seed."""
    # Imported here because it takes seconds, and only generated problems need it.
    import reasoning_gym

    try:
        draws, seed = spec.get("draws", 1), spec.get("seed", 0)
        problems = reasoning_gym.create_dataset(spec["generator"], size=draws, seed=seed, **spec["options"])
        problem = spec["entry"] if "entry" in spec else problems[spec["index"]]
        if problem["question"].strip() != question.strip():
            return None, "the generator gives another problem now"
        return float(problems.score_answer(answer, problem)), ""
    except (*_FAILURES, AssertionError, RuntimeError) as error:
        return None, f"scorer failed: {type(error).__name__}"


def _reply(request: dict[str, Any]) -> tuple[bool | float | str | None, str]:
    if request["do"] == "compare":
        return compare_texts(request["answer"], request["reference"])
    if request["do"] == "evaluate":
        return evaluate_text(request["answer"])
    return score_generated(request["spec"], request["question"], request["answer"])


def _requests(parent: int) -> Iterator[bytes]:
    waiting = b""
    while os.getppid() == parent:
        if not select.select([0], [], [], _LOOK_S)[0]:
            continue
        read = os.read(0, 65536)
        if not read:
            return
        *lines, waiting = (waiting + read).split(b"\n")
        yield from lines


def main() -> None:
    """Answer requests until the input closes or the parent is gone."""
    parent = os.getppid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    replies = os.dup(1)
    # Parsers print; only replies may reach the pipe.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.write(replies, b'{"ready": true}\n')
    for line in _requests(parent):
        request = json.loads(line)
        signal.alarm(int(request["limit_s"]) + GRACE_S)
        value, reason = _reply(request)
        signal.alarm(0)
        os.write(replies, json.dumps({"value": value, "reason": reason}).encode() + b"\n")


if __name__ == "__main__":
    main()
