"""What a prompt row must hold: reading files, checking rows, and tables of checked rows.

A row has an id, a prompt and a suite; reference, domain, share and metadata are optional. Each rule is checked once,
here, and each error names file, row, field, rule and value. Nothing is repaired silently: a blank reference is an
error, a null one means unlabelled. Whether a suite exists is checked by the caller, who knows the suites.
"""

import csv
import difflib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, cast

import pyarrow as pa
import pyarrow.parquet as pq

from rangeline.errors import DataContractError
from rangeline.records import ChatMessage, PromptRow, Reserved

FIELDS = ("prompt_id", "prompt", "prompt_format", "suite", "domain", "reference", "share", "metadata")
"""Known fields; `prompt_format` is `chat` where a table stores chat messages as JSON text, else `text`."""
ROLES = ("system", "user", "assistant")
UNLABELLED_SHARES = ("policy", "ratio")
SHARES = ("train", *UNLABELLED_SHARES, "warmup", "source", "calibration", "audit", "evaluation")
SHOWN_CHARACTERS = 80
_TABLE_SCHEMA = pa.schema([(name, pa.string()) for name in FIELDS])


def _fail(source: str, number: int, field: str, rule: str, value: object) -> DataContractError:
    shown = repr(value)
    shown = shown if len(shown) <= SHOWN_CHARACTERS else shown[: SHOWN_CHARACTERS - 3] + "..."
    return DataContractError(f"'{field}' must {rule}; got {shown} ({source}, row {number}). Correct the row.")


def _fail_file(path: Path, rule: str, value: object, step: str = "Correct the file.") -> DataContractError:
    return DataContractError(f"'{path}' must {rule}; got {value}. {step}")


def _refuse_constant(name: str) -> float:
    msg = f"{name} is not JSON"
    raise ValueError(msg)


def _decode_json(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError as error:
        msg = "nested too deeply"
        raise ValueError(msg) from error


def _read_jsonl(path: Path) -> list[dict[str, Any]]:
    rows = []
    lines = path.read_text(encoding="utf-8-sig").rstrip().split("\n")
    for number, line in enumerate(lines if lines != [""] else [], start=1):
        try:
            row = _decode_json(line)
        except ValueError as error:
            raise _fail_file(path, "hold one JSON object a line", f"line {number}: {error}") from error
        if not isinstance(row, dict):
            raise _fail_file(path, "hold one JSON object a line", f"line {number}: {line[:SHOWN_CHARACTERS]!r}")
        rows.append(row)
    return rows


def _cells_to_fields(row: Mapping[str, Any], path: Path, number: int) -> dict[str, Any]:
    """Drop null cells of a table row and read its metadata, which tables hold as JSON text."""
    fields = {name: value for name, value in row.items() if value is not None}
    if isinstance(fields.get("metadata"), str):
        try:
            fields["metadata"] = _decode_json(fields["metadata"])
        except ValueError as error:
            raise _fail(str(path), number, "metadata", f"be JSON text ({error})", fields["metadata"]) from error
    return fields


def _read_csv(path: Path) -> list[dict[str, Any]]:
    rows = []
    with path.open(encoding="utf-8-sig", newline="") as handle:
        for number, cells in enumerate(csv.DictReader(handle, strict=True), start=1):
            if None in cells or None in cells.values():
                raise _fail(str(path), number, "row", "have one cell for each column of the header", cells)
            filled = {name: cell for name, cell in cells.items() if cell != ""}
            rows.append(_cells_to_fields(filled, path, number))
    return rows


def _read_parquet(path: Path) -> list[dict[str, Any]]:
    cells = pq.read_table(path).to_pylist()
    return [_cells_to_fields(row, path, number) for number, row in enumerate(cells, start=1)]


_READERS = {".jsonl": _read_jsonl, ".csv": _read_csv, ".parquet": _read_parquet}


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Read the raw rows of a file; `parse_rows` checks them.

    Parameters
    ----------
    path
        File ending in `.jsonl` (one object a line), `.csv` or `.parquet` (metadata as JSON text). Empty CSV cells and
        null Parquet cells are absent fields.

    Returns
    -------
    list of dict
        At least one row.

    Raises
    ------
    DataContractError
        If the file is missing, unreadable, empty, of an unknown kind, or holds an invalid line.
    """
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise _fail_file(path, f"end in {', '.join(_READERS)}", f"'{path.suffix}'", "Convert or rename the file.")
    if not path.is_file():
        raise _fail_file(path, "be a file that exists", "no file", "Correct the path.")
    try:
        rows = reader(path)
    except (UnicodeDecodeError, csv.Error, pa.ArrowException, OSError) as error:
        raise _fail_file(path, f"be a readable {path.suffix} file in UTF-8", str(error)[:SHOWN_CHARACTERS]) from error
    if not rows:
        raise _fail_file(path, "hold at least one row", "0 rows", "Add rows or leave the file out.")
    return rows


def _is_text(value: object) -> bool:
    # Lone surrogates can be neither hashed nor stored.
    return isinstance(value, str) and bool(value.strip()) and value.encode("utf-8", "ignore").decode() == value


class _Row:
    """One raw row with its place, for the messages."""

    def __init__(self, fields: Mapping[str, Any], source: str, number: int) -> None:
        self.fields, self.source, self.number = fields, source, number

    def fail(self, field: str, rule: str, value: object) -> NoReturn:
        raise _fail(self.source, self.number, field, rule, value)

    def text(self, field: str, default: str | None = None) -> str:
        value = self.fields.get(field)
        value = default if value is None else value
        if not _is_text(value):
            self.fail(field, "be a non-blank string of valid characters", value)
        return cast(str, value)

    def one_of(self, field: str, known: tuple[str, ...]) -> str:
        value = self.fields.get(field)
        value = known[0] if value is None else value
        if value not in known:
            self.fail(field, f"be one of {', '.join(known)}", value)
        return cast(str, value)

    def check_names(self) -> None:
        for name in self.fields:
            if name not in FIELDS:
                close = difflib.get_close_matches(str(name), FIELDS, n=1)
                hint = f" (did you mean '{close[0]}'?)" if close else ""
                self.fail(str(name), f"be one of the fields {', '.join(FIELDS)}{hint}", self.fields[name])

    def prompt(self) -> str | tuple[ChatMessage, ...]:
        value = self.fields.get("prompt")
        if self.one_of("prompt_format", ("text", "chat")) == "chat" and isinstance(value, str):
            try:
                value = _decode_json(value)
            except ValueError as error:
                self.fail("prompt", f"be JSON text where 'prompt_format' is chat ({error})", value)
        if not isinstance(value, list):
            return self.text("prompt")
        if not value:
            self.fail("prompt", "hold at least one chat message", value)
        return tuple(self._message(message) for message in value)

    def _message(self, message: object) -> ChatMessage:
        if not isinstance(message, dict) or set(message) != {"role", "content"}:
            self.fail("prompt", "be chat messages with 'role' and 'content'", message)
        if message["role"] not in ROLES:
            self.fail("prompt.role", f"be one of {', '.join(ROLES)}", message["role"])
        if not _is_text(message["content"]):
            self.fail("prompt.content", "be a non-blank string of valid characters", message["content"])
        return ChatMessage(message["role"], message["content"])

    def reference(self) -> str | None:
        value = self.fields.get("reference")
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is None or (is_number and math.isfinite(value)):
            return None if value is None else str(value)
        if not _is_text(value):
            self.fail("reference", "be a non-blank string, a finite number, or null where unlabelled", value)
        return cast(str, value)

    def metadata(self) -> dict[str, Any]:
        value = self.fields.get("metadata")
        value = {} if value is None else value
        try:
            stored = json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
        except (TypeError, ValueError) as error:
            self.fail("metadata", f"be an object that JSON can hold ({error})", value)
        if not isinstance(value, dict):
            self.fail("metadata", "be an object", value)
        return cast(dict[str, Any], json.loads(stored))


def _parse_row(row: _Row) -> PromptRow:
    row.check_names()
    share = row.one_of("share", SHARES)
    reference = row.reference()
    if share in UNLABELLED_SHARES and reference is not None:
        row.fail("reference", f"be absent where 'share' is {share}", reference)
    if share not in ("train", *UNLABELLED_SHARES) and reference is None:
        row.fail("reference", f"be present where 'share' is {share}", None)
    return PromptRow(
        prompt_id=row.text("prompt_id"),
        prompt=row.prompt(),
        suite=row.text("suite"),
        domain=row.text("domain", "default"),
        reference=reference,
        share=cast(Reserved, share),
        metadata=row.metadata(),
    )


def parse_rows(raw: Sequence[Mapping[str, Any]], *, source: str) -> tuple[PromptRow, ...]:
    """Check raw rows against the contract and return them as records.

    Parameters
    ----------
    raw
        Rows as read, one mapping each; row numbers in messages count from 1.
    source
        Name of the file or generator, for the messages.

    Returns
    -------
    tuple of PromptRow
        In the order given.

    Raises
    ------
    DataContractError
        If a field is unknown, absent, of the wrong kind or blank, or a prompt id occurs twice.
    """
    first: dict[str, int] = {}
    rows = []
    for number, fields in enumerate(raw, start=1):
        row = _Row(fields, source, number)
        record = _parse_row(row)
        if record.prompt_id in first:
            row.fail("prompt_id", f"be unique (row {first[record.prompt_id]} has it too)", record.prompt_id)
        first[record.prompt_id] = number
        rows.append(record)
    return tuple(rows)


def _to_cells(rows: Sequence[PromptRow]) -> Iterator[dict[str, str | None]]:
    for row in rows:
        is_chat = not isinstance(row.prompt, str)
        messages = [{"role": turn.role, "content": turn.content} for turn in row.prompt if not isinstance(turn, str)]
        yield {
            "prompt_id": row.prompt_id,
            "prompt": json.dumps(messages, ensure_ascii=False) if is_chat else cast(str, row.prompt),
            "prompt_format": "chat" if is_chat else "text",
            "suite": row.suite,
            "domain": row.domain,
            "reference": row.reference,
            "share": row.share,
            "metadata": json.dumps(row.metadata, ensure_ascii=False),
        }


def rows_to_dicts(rows: Sequence[PromptRow]) -> list[dict[str, str | None]]:
    """Return rows as plain dicts of text cells: chat prompts and metadata as JSON, unlabelled as None."""
    return list(_to_cells(rows))


def rows_to_table(rows: Sequence[PromptRow]) -> pa.Table:
    """Return rows as a table of text columns, the same for none, some and all labelled; nothing is lost."""
    return pa.Table.from_pylist(rows_to_dicts(rows), schema=_TABLE_SCHEMA)


def table_to_rows(table: pa.Table | Sequence[Mapping[str, Any]], *, source: str = "table") -> tuple[PromptRow, ...]:
    """Return the rows of a table or of plain dicts; the inverse of `rows_to_table` and `rows_to_dicts`.

    Raises
    ------
    DataContractError
        If a row breaks the contract, as in `parse_rows`.
    """
    cells = table.to_pylist() if isinstance(table, pa.Table) else table
    fields = [_cells_to_fields(row, Path(source), number) for number, row in enumerate(cells, start=1)]
    return parse_rows(fields, source=source)
