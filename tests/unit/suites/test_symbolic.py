"""The door to the worker: one process, a wall clock, no orphans, and outcomes that are never silently wrong."""

import os
import signal
import subprocess
import sys
import threading
import time
from fractions import Fraction

import pytest

from rangeline.suites.base import Comparison
from rangeline.suites.expression_text import MAX_EXPRESSION_LENGTH
from rangeline.suites.symbolic import (
    CRASHED,
    TIMED_OUT,
    SymbolicWorker,
    compare_expressions,
    evaluate_expression,
    reference_is_readable,
    shared_worker,
)

ENDLESS = {"do": "compare", "answer": r"\sum_{k=1}^{1000000000} \sin(k^2)", "reference": "1"}
EASY = {"do": "compare", "answer": "x+x", "reference": "2x"}


@pytest.fixture
def worker():
    """Give a worker of its own, ended afterwards."""
    worker = SymbolicWorker()
    yield worker
    worker.close()


def _is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as handle:  # noqa: PTH123
            return handle.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _wait_until_gone(pid, limit_s=15.0):
    deadline = time.monotonic() + limit_s
    while _is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    return not _is_alive(pid)


def test_one_process_answers_many_requests(worker):
    """The worker is started once and used again."""
    assert worker.ask(EASY).value is True
    first = worker.pid
    assert worker.ask(EASY).value is True
    assert first == worker.pid


def test_late_comparison_is_missing_and_its_process_replaced(worker):
    """What outlasts the wall clock gives no verdict; its process is killed and the next request gets another."""
    worker.ask(EASY)
    first = worker.pid
    started = time.monotonic()
    answer = worker.ask(ENDLESS, limit_s=0.5)
    assert (None, TIMED_OUT) == (answer.value, answer.reason)
    assert time.monotonic() - started < 5
    assert _wait_until_gone(first)
    assert worker.ask(EASY).value is True
    assert first != worker.pid


def test_crash_is_missing_and_its_process_replaced(worker):
    """A worker that dies gives no verdict, and the next request gets another."""
    worker.ask(EASY)
    os.kill(worker.pid, signal.SIGKILL)
    answer = worker.ask(EASY)
    assert (None, CRASHED) == (answer.value, answer.reason)
    assert worker.ask(EASY).value is True


def test_threads_share_one_worker():
    """Requests of many threads come back each to its own."""
    outcomes = {}

    def ask(i):
        outcomes[i] = compare_expressions(f"y+{i}+0y", f"{i}+y"), compare_expressions(f"y+{i}", f"y+{i + 1}")

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {(True, False)} == {(same.equal, other.equal) for same, other in outcomes.values()}


def test_forked_child_has_its_own_worker_and_spares_the_parent_s():
    """A child neither reads the parent's replies nor ends its worker when it exits."""
    assert compare_expressions("z+z", "2z").equal
    mine = shared_worker().pid
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        status = compare_expressions("w+w", "2w").equal and shared_worker().pid != mine
        os.write(write, b"1" if status else b"0")
        shared_worker().close()
        os._exit(0)
    os.waitpid(child, 0)
    assert b"1" == os.read(read, 1)
    assert _is_alive(mine)
    assert compare_expressions("v+v", "2v").equal
    assert mine == shared_worker().pid


@pytest.mark.parametrize("busy", [False, True])
def test_killed_parent_leaves_no_worker(busy):
    """A worker ends with its parent, idle or in the midst of a comparison."""
    code = (
        "import sys, threading, time\n"
        "from rangeline.suites.symbolic import SymbolicWorker\n"
        f"worker = SymbolicWorker(); worker.ask({EASY!r}); print(worker.pid, flush=True)\n"
        f"{f'worker.ask({ENDLESS!r}, limit_s=1)' if busy else 'time.sleep(60)'}\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        pid = int(parent.stdout.readline())
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    assert _wait_until_gone(pid)


def test_worker_ends_with_its_interpreter():
    """An interpreter that ends in the usual way takes its worker along."""
    code = (
        "from rangeline.suites.symbolic import compare_expressions, shared_worker\n"
        "compare_expressions('x+x', '2x'); print(shared_worker().pid)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert _wait_until_gone(int(result.stdout))
    assert "" == result.stderr


@pytest.mark.parametrize(
    ("answer", "reference", "equal"),
    [("1,000", "1000.0", True), ("7", "8", False), (r"$\frac43$", r"\dfrac{4}{3}", True), (r"\text{Odd}", "Odd", True)],
)
def test_plain_numbers_and_equal_writings_need_no_process(answer, reference, equal, monkeypatch):
    """The fast path never starts a worker."""
    monkeypatch.setattr(subprocess, "Popen", None)
    assert Comparison(equal) == compare_expressions(answer, reference)


def test_long_answers_are_compared_as_texts_only():
    """Noise of any length is not parsed: the same text is equal, another is not decided."""
    long = "x+" * MAX_EXPRESSION_LENGTH
    assert compare_expressions(long, long).equal
    assert Comparison(None, "too long to compare") == compare_expressions(long, "x")


def test_readable_references():
    """Numbers, expressions and words are readable, fragments are not."""
    assert all(map(reference_is_readable, ("7", r"\frac{x}{2}", r"\text{Monday}", "[2,5)", "x<3 or x>5")))
    assert not any(map(reference_is_readable, (r"\foo{", r"\frac{1}{", "")))


def test_values_of_constants():
    """A plain number is exact, a constant has thirty digits, anything else has no value."""
    assert Fraction(5, 2) == evaluate_expression("2.5")
    assert abs(evaluate_expression(r"\frac{\pi}{4}") - Fraction("0.785398163397448309615660845820")) < Fraction(
        1, 10**28
    )
    assert Fraction(3) == evaluate_expression("x = 3")
    assert None is evaluate_expression("x + 1")
    assert None is evaluate_expression("i")
