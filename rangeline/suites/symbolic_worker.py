"""The process that compares expressions: one JSON request a line in, one JSON reply a line out.

It ends by itself when its input closes or its parent is another than at the start, and is killed by its own alarm when
one comparison outlasts the wall clock, so that a parent that died meanwhile leaves nothing behind. Its memory is
capped. Nothing that it reads is executed: texts go to a grammar, never to `eval`.
"""

import json
import os
import resource
import select
import signal
from collections.abc import Iterator

from rangeline.suites.expression_rules import nodes_equal, require_readable
from rangeline.suites.expression_structure import read_structure
from rangeline.suites.expression_text import tidy_expression
from rangeline.suites.expression_values import UndecidedError, UnreadableError

MEMORY_BYTES = 4 * 1024**3
GRACE_S = 5
"""Seconds after the wall clock of the parent at which the process ends itself."""
_LOOK_S = 2.0
_FAILURES = (
    ArithmeticError, AttributeError, LookupError, MemoryError, NotImplementedError, RecursionError, TypeError,
    ValueError,
)  # fmt: skip
"""What algebra raises on expressions that it cannot handle."""


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
        equal, reason = compare_texts(request["answer"], request["reference"])
        signal.alarm(0)
        os.write(replies, json.dumps({"id": request["id"], "equal": equal, "reason": reason}).encode() + b"\n")


if __name__ == "__main__":
    main()
