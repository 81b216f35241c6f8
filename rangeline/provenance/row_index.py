"""Which prompt lies in which table: an index by the digest of the table, so that an entry is never stale.

The index is a SQLite file beside the judge's verdicts; deleting it loses only time. Tables are Parquet files with a
column of prompt ids, JSONL files, and JSON lists of objects with a prompt id.
"""

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from rangeline.errors import LineageError
from rangeline.lineage import digest_file
from rangeline.provenance.kept import find_kept

ID_COLUMNS = ("prompt_id", "prompt_id_N")
_SUFFIXES = (".parquet", ".jsonl", ".json")
_BUSY_SECONDS = 30.0
_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS held (sha256 TEXT PRIMARY KEY, is_table INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS ids (prompt_id TEXT, sha256 TEXT, PRIMARY KEY (prompt_id, sha256)) WITHOUT ROWID",
)


class RowIndex:
    """The index of one workspace, made when first asked.

    Parameters
    ----------
    root
        Workspace; the index is `.rangeline/rows.sqlite`.
    """

    def __init__(self, root: Path) -> None:
        self._root, self._path = root, root / ".rangeline" / "rows.sqlite"

    def add(self, files: Iterable[tuple[str, str]]) -> tuple[str, ...]:
        """Take in tables by path and sha256; return the paths whose bytes are no longer at hand.

        Raises
        ------
        LineageError
            When the index is no SQLite file, or stays locked.
        """
        absent = []
        # One transaction: a commit a table would wait for the disk thousands of times; killed, it is begun anew.
        with self._connection() as connection, connection:
            held = {row[0] for row in connection.execute("SELECT sha256 FROM held")}
            for path, sha256 in files:
                if sha256 in held or not path.endswith(_SUFFIXES):
                    continue
                place = self._bytes_of(path, sha256)
                if place is None:
                    absent.append(path)
                    continue
                ids = prompt_ids_of(place, suffix=Path(path).suffix)
                connection.execute("INSERT OR REPLACE INTO held VALUES (?, ?)", (sha256, ids is not None))
                rows = [(prompt_id, sha256) for prompt_id in ids or ()]
                connection.executemany("INSERT OR IGNORE INTO ids VALUES (?, ?)", rows)
                held.add(sha256)
        return tuple(absent)

    def tables(self) -> set[str]:
        """Return the digests of the files that hold prompt ids."""
        with self._connection() as connection:
            return {row[0] for row in connection.execute("SELECT sha256 FROM held WHERE is_table")}

    def holding(self, prompt_id: str) -> set[str]:
        """Return the digests of the tables that hold a prompt."""
        with self._connection() as connection:
            query = "SELECT sha256 FROM ids WHERE prompt_id = ?"
            return {row[0] for row in connection.execute(query, (prompt_id,))}

    def ids_like(self, prompt_id: str, count: int = 3) -> list[str]:
        """Return some known ids that begin as this one does."""
        with self._connection() as connection:
            query = "SELECT DISTINCT prompt_id FROM ids WHERE substr(prompt_id, 1, ?) = ? ORDER BY prompt_id LIMIT ?"
            start = prompt_id[: max(1, len(prompt_id) // 2)]
            return [row[0] for row in connection.execute(query, (len(start), start, count))]

    def _bytes_of(self, path: str, sha256: str) -> Path | None:
        place = self._root / path
        if place.is_file() and digest_file(place) == sha256:
            return place
        return find_kept(self._root, sha256)

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with closing(sqlite3.connect(self._path, timeout=_BUSY_SECONDS)) as connection:
                for statement in _SCHEMA:
                    connection.execute(statement)
                yield connection
        except sqlite3.Error as error:
            msg = f"'{self._path}' must be an index of rows; got '{error}'. Delete the file: it is made again."
            raise LineageError(msg) from error


def prompt_ids_of(path: Path, *, suffix: str) -> set[str] | None:
    """Return the distinct prompt ids of a table; None where the file holds none."""
    if suffix == ".parquet":
        try:
            names = [name for name in pq.read_schema(path).names if name in ID_COLUMNS]
            return set(pq.read_table(path, columns=names[:1])[names[0]].to_pylist()) if names else None
        except (pa.ArrowInvalid, OSError):
            return None
    text = path.read_text(encoding="utf-8", errors="replace")
    return _ids_of_rows([text] if suffix == ".json" else text.splitlines(), is_list=suffix == ".json")


def _ids_of_rows(texts: Sequence[str], *, is_list: bool) -> set[str] | None:
    ids: set[str] = set()
    for text in texts:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            continue
        rows = value if is_list and isinstance(value, list) else [value]
        ids |= {str(row["prompt_id"]) for row in rows if isinstance(row, dict) and "prompt_id" in row}
    return ids or None
