"""The one door to what may hang: a worker process with a wall clock, started once and used again.

Two answers are equal, not equal, or it cannot be said (None, with a reason): time-outs, crashes and references that are
no expressions are never "wrong". Equal writings and exact plain numbers never need the process. A worker that is late
is killed and replaced; it ends with its parent, and a forked child starts its own.
"""

import json
import os
import select
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from pathlib import Path

from rangeline.suites.answer_equivalence import parse_number
from rangeline.suites.base import Comparison
from rangeline.suites.expression_text import MAX_EXPRESSION_LENGTH, tidy_expression

WALL_CLOCK_S = 5.0
"""Seconds that one comparison may take."""
START_S = 90.0
"""Seconds that the worker may take to import its algebra on a busy machine."""
GENERATOR_S = 60.0
"""Seconds for a generator's scorer, whose library takes seconds to import."""
TIMED_OUT, CRASHED = "comparison timed out", "comparison crashed"
_WORKER = "rangeline.suites.symbolic_worker"
_KEPT = 4096


@dataclass(frozen=True, slots=True)
class Answer:
    """What the worker says."""

    value: object
    """None where nothing can be said."""
    reason: str


class LateError(Exception):
    """The worker did not answer in time."""


def _end(process: subprocess.Popen[bytes], owner: int) -> None:
    # A forked child holds a copy of this object, and must not kill its parent's worker.
    if os.getpid() != owner:
        return
    process.kill()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()
    process.wait()


class _Channel:
    """A running worker and its two pipes."""

    def __init__(self) -> None:
        root = str(Path(__file__).resolve().parents[2])
        paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
        self.process = subprocess.Popen(
            # -P: a file called sympy.py in the working directory is not what is meant.
            [sys.executable, "-P", "-m", _WORKER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        )
        self.end = weakref.finalize(self, _end, self.process, os.getpid())
        self._waiting = b""
        self.read(START_S)

    def read(self, limit_s: float) -> dict[str, object]:
        """Return the next reply.

        Raises
        ------
        LateError
            If none came within the limit.
        EOFError
            If the worker ended.
        """
        stdout = self.process.stdout
        if stdout is None:
            raise EOFError
        deadline = time.monotonic() + limit_s
        while b"\n" not in self._waiting:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([stdout], [], [], left)[0]:
                raise LateError
            part = os.read(stdout.fileno(), 65536)
            if not part:
                raise EOFError
            self._waiting += part
        line, _, self._waiting = self._waiting.partition(b"\n")
        reply: dict[str, object] = json.loads(line)
        return reply

    def ask(self, request: dict[str, object], limit_s: float) -> dict[str, object]:
        """Send one request and return its reply; raises as `read`, and OSError where the pipe is closed."""
        if self.process.stdin is not None:
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
        return self.read(limit_s)


class SymbolicWorker:
    """A worker that is started when first needed and replaced when it fails; one request at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._channel: _Channel | None = None

    @property
    def pid(self) -> int | None:
        """Return the process id of the running worker; None where none runs."""
        return None if self._channel is None else self._channel.process.pid

    def close(self) -> None:
        """End the worker; the next request starts another."""
        if self._channel is not None:
            self._channel.end()
            self._channel = None

    def ask(self, request: Mapping[str, object], *, limit_s: float = WALL_CLOCK_S) -> Answer:
        """Put one request to the worker.

        Parameters
        ----------
        request
            What to do, as the worker reads it.
        limit_s
            Wall clock of this request, positive; the start of a worker does not count.
        """
        with self._lock:
            is_answered = False
            try:
                if self._channel is None:
                    self._channel = _Channel()
                reply = self._channel.ask({**request, "limit_s": limit_s}, limit_s)
                is_answered = True
            except LateError:
                return Answer(None, TIMED_OUT)
            except (EOFError, OSError, ValueError):
                return Answer(None, CRASHED)
            finally:
                # After an interrupt, too: else its reply would come for the next request.
                if not is_answered:
                    self.close()
        return Answer(reply["value"], str(reply["reason"]))


@lru_cache(maxsize=1)
def _worker_of(pid: int) -> SymbolicWorker:
    return SymbolicWorker()


def shared_worker() -> SymbolicWorker:
    """Return the worker of this process; a forked child gets its own."""
    return _worker_of(os.getpid())


@lru_cache(maxsize=_KEPT)
def _ask(request: str, limit_s: float) -> Answer:
    answer = shared_worker().ask(json.loads(request), limit_s=limit_s)
    # A busy machine is late, too, so ask once more; what is late twice is remembered as such.
    return (
        shared_worker().ask(json.loads(request), limit_s=limit_s) if answer.reason in (TIMED_OUT, CRASHED) else answer
    )


def _decided(answer: str, reference: str) -> Comparison:
    said = _ask(json.dumps({"do": "compare", "answer": answer, "reference": reference}), WALL_CLOCK_S)
    return Comparison(said.value if isinstance(said.value, bool) else None, said.reason)


def compare_expressions(answer: str, reference: str) -> Comparison:
    r"""Say whether an answer equals a reference as mathematics.

    Parameters
    ----------
    answer
        Text of the answer, LaTeX or plain.
    reference
        Text of the reference.

    Examples
    --------
    >>> compare_expressions("1,000.0", "1000").equal, compare_expressions(r"\frac43", r"$\frac{4}{3}$").equal
    (True, True)
    """
    if max(len(answer), len(reference)) > MAX_EXPRESSION_LENGTH:
        return Comparison(answer == reference or None, "too long to compare")
    values = parse_number(answer), parse_number(reference)
    if values[0] is not None and values[1] is not None and "%" not in answer + reference:
        return Comparison(values[0] == values[1])
    tidy = tidy_expression(answer), tidy_expression(reference)
    if not tidy[1]:
        return Comparison(None, "unreadable reference")
    return Comparison(True) if tidy[0] == tidy[1] else _decided(answer, reference)


def reference_is_readable(reference: str) -> bool:
    """Say whether other writings of a reference could be recognised: whether it is an expression or words."""
    if parse_number(reference) is not None:
        return True
    return _decided("", reference).reason not in ("unreadable reference", CRASHED)


def evaluate_expression(answer: str) -> Fraction | None:
    r"""Return the value of a number or constant expression, in 30 digits where it is no plain number; else None.

    Examples
    --------
    >>> evaluate_expression("2.50"), evaluate_expression("blue")
    (Fraction(5, 2), None)
    """
    value = parse_number(answer)
    if value is not None or len(answer) > MAX_EXPRESSION_LENGTH:
        return value
    said = _ask(json.dumps({"do": "evaluate", "answer": answer}), WALL_CLOCK_S).value
    return Fraction(said) if isinstance(said, str) else None


def score_generated(spec: Mapping[str, object], question: str, answer: str) -> Answer:
    """Return the score of an answer by the scorer of the generator that made its problem, in the worker.

    Parameters
    ----------
    spec
        `generator` and `options`, with the problem as `entry`, or with `seed`, `draws` and `index` to make it again.
    question
        The problem's text, which must come out the same.
    answer
        The answer's text.
    """
    request = {"do": "score", "spec": dict(spec), "question": question, "answer": answer}
    return _ask(json.dumps(request, sort_keys=True), GENERATOR_S)
