"""Processes that a test started, known by a word in their environment; and what a run ended with, by digest."""

import os
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path

from rangeline.lineage import digest_file

MARK = "RANGELINE_TEST_MARK"


def marked(word):
    """Return the living processes but this one whose environment holds the word, each with its command line."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            environ = (entry / "environ").read_bytes()
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # ended while being looked at, or not ours
            continue
        if f"{MARK}={word}".encode() in environ and state != "Z":
            found[int(entry.name)] = command
    return found


def wait_for_none(word, seconds=3.0):
    """Return the marked processes that are still alive after a while."""
    deadline = time.monotonic() + seconds
    while (alive := marked(word)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return alive


def kill_marked(word):
    """End whatever is left of a test."""
    for pid in marked(word):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def find_marked(word, part):
    """Return the numbers of the marked processes whose command line holds some words, the oldest first."""
    return sorted(pid for pid, command in marked(word).items() if part in command)


def learned(run):
    """Return the digests of what a run learned and measured: weights, optimiser, advantages and metrics."""
    names = ("policy/model.safetensors", "optimizer.safetensors", "advantages.parquet", "metrics.json")
    files = [
        path for folder in ("checkpoints", "iterations") for name in names for path in run.glob(f"{folder}/*/{name}")
    ]
    return {path.relative_to(run).as_posix(): digest_file(path) for path in files}


def listen(process):
    """Take in what a command says while it works, so that no full pipe stops it; return what gives all of it."""
    lines = []
    thread = threading.Thread(target=lambda: lines.extend(process.stdout), daemon=True)
    thread.start()

    def said():
        thread.join(30)
        return "".join(lines)

    return said
