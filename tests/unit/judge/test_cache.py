"""The verdict cache: exact values, two writers, broken files."""

import sqlite3
import subprocess
import sys

import pytest

from rangeline.errors import JudgeError
from rangeline.judge.cache import VerdictCache

WRITER = """
import sys
from pathlib import Path
from rangeline.judge.cache import VerdictCache
cache = VerdictCache(Path(sys.argv[1]))
for i in range(40):
    cache.put_many({f"{sys.argv[2]}-{i}": (-float(i), -0.5), f"both-{i}": (-1.0,)})
"""


def test_values_come_back_exactly(tmp_path):
    """What is stored comes back bit for bit, unknown keys are absent, and any number of keys may be asked."""
    cache = VerdictCache(tmp_path / "v.sqlite")
    assert {} == cache.get_many(["a"])
    cache.put_many({f"k{i}": (-i / 7, -1e-300) for i in range(1200)})
    found = VerdictCache(tmp_path / "v.sqlite").get_many([*(f"k{i}" for i in range(1200)), "other"])
    assert {f"k{i}": (-i / 7, -1e-300) for i in range(1200)} == found


def test_the_first_verdict_stays(tmp_path):
    """A key that is known keeps its value."""
    cache = VerdictCache(tmp_path / "v.sqlite")
    cache.put_many({"a": (-1.0,)})
    cache.put_many({"a": (-2.0,)})
    assert {"a": (-1.0,)} == cache.get_many(["a"])


def test_two_processes_write_one_file(tmp_path):
    """Two processes that make and fill the same file at once lose nothing."""
    path = tmp_path / "v.sqlite"
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(path), name]) for name in ("x", "y")]
    assert [0, 0] == [writer.wait(timeout=60) for writer in writers]
    keys = [f"{name}-{i}" for name in ("x", "y", "both") for i in range(40)]
    assert set(keys) == set(VerdictCache(path).get_many(keys))


def test_failed_judgments_are_not_kept(tmp_path):
    """A verdict that is not finite is refused."""
    with pytest.raises(JudgeError, match=r"'verdicts' must be finite; got \[nan\] \(key a\)"):
        VerdictCache(tmp_path / "v.sqlite").put_many({"a": (float("nan"),)})


def test_a_file_that_is_no_cache_is_named(tmp_path):
    """A corrupt file is an error with its path and the remedy."""
    path = tmp_path / "v.sqlite"
    path.write_bytes(b"not a database" * 100)
    with pytest.raises(JudgeError, match=r"must be a readable verdict cache; .*v.sqlite.* Delete the file"):
        VerdictCache(path).get_many(["a"])


def test_an_absent_folder_is_named(tmp_path):
    """A cache is not made in a folder that does not exist."""
    with pytest.raises(JudgeError, match=r"must be a readable verdict cache; .*absent"):
        VerdictCache(tmp_path / "absent" / "v.sqlite").put_many({"a": (-1.0,)})


@pytest.mark.parametrize("value", ["no json", "3", "[null]", '["a"]'])
def test_values_that_are_no_numbers_are_named(tmp_path, value):
    """A row someone else wrote is an error, never a verdict."""
    path = tmp_path / "v.sqlite"
    VerdictCache(path).put_many({"a": (-1.0,)})
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE verdict SET value = ?", (value,))
    connection.close()
    with pytest.raises(JudgeError, match=r"'cache' must hold lists of numbers; got .*key a"):
        VerdictCache(path).get_many(["a"])
