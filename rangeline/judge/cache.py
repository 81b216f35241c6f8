"""Keep a judge's verdicts by content: the same question to the same judge is asked once.

A verdict is the values of a question's options, stored as JSON in a SQLite file. Its key is a hash of all that
determines it: judge (model, and how it is asked), system turn, examples, and the question as rendered, so template,
rubric, prompt, completion and what it shows of the group. So nothing is ever stale, and deleting the file loses time
and the count of what was spent. Several processes and runs may read and write one file at once.
"""

import json
import math
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from rangeline.errors import JudgeError

_BUSY_SECONDS = 30.0
_KEYS_PER_QUERY = 500  # SQLite builds differ in how many variables a statement may have; 999 is the least


class VerdictCache:
    """Verdicts of judges in one SQLite file, made when first written to.

    Parameters
    ----------
    path
        The file; its folder must exist.

    Notes
    -----
    Each call opens and closes its own connection, so that an object survives forks and is safe in threads.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def get_many(self, keys: Sequence[str]) -> dict[str, tuple[float, ...]]:
        """Return the verdicts that are known among the keys.

        Raises
        ------
        JudgeError
            If the file is not a verdict cache, or stays locked.
        """
        found: dict[str, tuple[float, ...]] = {}
        with self._connection() as connection:
            for start in range(0, len(keys), _KEYS_PER_QUERY):
                part = list(keys[start : start + _KEYS_PER_QUERY])
                marks = ",".join("?" * len(part))
                query = f"SELECT key, value FROM verdict WHERE key IN ({marks})"
                found.update({key: self._decode(key, value) for key, value in connection.execute(query, part)})
        return found

    def put_many(self, verdicts: Mapping[str, Sequence[float]]) -> None:
        """Store verdicts, all or none; a key that is already there keeps its value.

        Raises
        ------
        JudgeError
            If a log-probability is not finite, the file is not a verdict cache, or it stays locked.
        """
        for key, values in verdicts.items():
            if not all(math.isfinite(value) for value in values):
                msg = f"'verdicts' must be finite; got {list(values)} (key {key}). Leave failed judgments out."
                raise JudgeError(msg)
        rows = [(key, json.dumps([float(value) for value in values])) for key, values in verdicts.items()]
        with self._connection() as connection, connection:
            connection.executemany("INSERT OR IGNORE INTO verdict (key, value) VALUES (?, ?)", rows)

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        columns = "verdict (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID"
        with open_store(self._path, columns) as connection:
            yield connection

    def _decode(self, key: str, value: str) -> tuple[float, ...]:
        try:
            return tuple(float(item) for item in json.loads(value))
        except (TypeError, ValueError) as error:
            msg = (
                f"'cache' must hold lists of numbers; got {value!r} (key {key}, {self._path}). "
                "Delete the file: it is made again by asking the judge."
            )
            raise JudgeError(msg) from error


@contextmanager
def open_store(path: Path, table: str) -> Iterator[sqlite3.Connection]:
    """Open the file of verdicts with one of its tables, which is made where it is absent.

    Raises
    ------
    JudgeError
        If the file is not a verdict cache, or stays locked.
    """
    try:
        with closing(sqlite3.connect(path, timeout=_BUSY_SECONDS)) as connection:
            _use_write_ahead_log(connection)
            connection.execute(f"CREATE TABLE IF NOT EXISTS {table}")
            yield connection
    except sqlite3.Error as error:
        msg = (
            f"'cache' must be a readable verdict cache; got '{error}' ({path}). "
            "Delete the file: it is made again by asking the judge."
        )
        raise JudgeError(msg) from error


def _use_write_ahead_log(connection: sqlite3.Connection) -> None:
    """Turn the log on, once a file; SQLite does not wait for a lock there, so waiting is done here."""
    deadline = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
                connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return
