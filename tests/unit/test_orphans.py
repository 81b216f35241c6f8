"""Orphans: a command lives as long as its parent, and no longer."""

import os
import select
import subprocess
import sys

from rangeline import errors
from rangeline.orphans import ORPHAN_EXIT

_CHILD = """
import sys, time
from rangeline.orphans import watch_parent
watch_parent(0.02)
print("watching", flush=True)
time.sleep({seconds})
"""
_PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], pass_fds=[{fd}], stdout=subprocess.PIPE)
child.stdout.readline()
"""


def test_command_ends_when_its_parent_is_gone():
    """A command whose parent ends first ends too, although it would have slept on."""
    reader, writer = os.pipe()
    child = _CHILD.format(seconds=60)
    subprocess.run([sys.executable, "-c", _PARENT.format(fd=writer), child], pass_fds=[writer], check=True)
    os.close(writer)
    # The command holds the other end of the pipe: it is at its end when the command is.
    readable, _, _ = select.select([reader], [], [], 20)
    at_end = bool(readable) and os.read(reader, 1) == b""
    os.close(reader)
    assert at_end


def test_command_goes_on_while_its_parent_lives():
    """Watching alone does not end a command."""
    result = subprocess.run([sys.executable, "-c", _CHILD.format(seconds=0.2)], check=False, capture_output=True)
    assert 0 == result.returncode


def test_ended_command_says_so_by_its_status():
    """The exit status of an ended orphan is no other error's."""
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    assert ORPHAN_EXIT not in {getattr(kind, "exit_code", 0) for kind in kinds}
