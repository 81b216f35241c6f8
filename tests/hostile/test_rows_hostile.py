"""Data rows that broke other loaders: each is refused with file, row and rule, and none is repaired silently."""

import pytest

from rangeline.errors import DataContractError
from rangeline.prompts.contract import parse_rows, read_rows, rows_to_table, table_to_rows

GOOD = '{"prompt_id": "a", "prompt": "1 + 1?", "suite": "s"}'


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (f"{GOOD}\n{{'prompt': 1}}", "one JSON object a line; got line 2"),
        (f"{GOOD}\n\n{GOOD}", "one JSON object a line; got line 2"),
        (f"{GOOD}\n[1, 2]", r"one JSON object a line; got line 2: '\[1, 2\]'"),
        (f"{GOOD}\n{GOOD[:20]}", "got line 2"),
        ('{"reference": NaN}', "line 1: NaN is not JSON"),
        ("[" * 100_000, "line 1: nested too deeply"),
        ("", r"must hold at least one row; got 0 rows"),
        ("\n\n", r"must hold at least one row; got 0 rows"),
    ],
)
def test_broken_lines_are_named(tmp_path, text, match):
    """A line that is no JSON object stops the reading, with its number."""
    path = tmp_path / "rows.jsonl"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataContractError, match=match):
        read_rows(path)


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("rows.jsonl", b"\xff\xfe\x00", "must be a readable .jsonl file in UTF-8"),
        ("rows.parquet", b"PAR1 but not really", "must be a readable .parquet file"),
        ("rows.csv", b"prompt_id,prompt\na,b,c\n", r"'row' must have one cell for each column.*rows.csv, row 1"),
        ("rows.csv", b"prompt_id,prompt\na\n", r"'row' must have one cell for each column.*rows.csv, row 1"),
        ("rows.csv", b'prompt_id,prompt\na,"b\n', "must be a readable .csv file"),
        ("rows.csv", b"prompt_id,metadata\na,{x\n", r"'metadata' must be JSON text .*rows.csv, row 1"),
        ("rows.csv", b"prompt_id,prompt\n", "must hold at least one row"),
        ("rows.csv", b"", "must hold at least one row"),
        ("rows.xlsx", b"", r"must end in .jsonl, .csv, .parquet; got '.xlsx'"),
    ],
)
def test_broken_files_are_named(tmp_path, name, content, match):
    """A file that cannot be read whole is refused."""
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(DataContractError, match=match):
        read_rows(path)


def test_missing_file_is_named(tmp_path):
    """A path without a file is refused, and so is a folder."""
    with pytest.raises(DataContractError, match="must be a file that exists; got no file"):
        read_rows(tmp_path / "none.jsonl")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(DataContractError, match="must be a file that exists"):
        read_rows(tmp_path / "folder.csv")


def test_byte_order_mark_and_line_separators_are_no_content(tmp_path):
    """A byte order mark is dropped, and a Unicode line separator inside a string parts no line."""
    path = tmp_path / "rows.jsonl"
    path.write_text('\ufeff{"prompt": "a\u2028b"}\r\n{"prompt": "c"}\r\n', encoding="utf-8")
    assert ["a\u2028b", "c"] == [row["prompt"] for row in read_rows(path)]


@pytest.mark.parametrize(
    ("field", "value", "match"),
    [
        ("prompt", "a\ud800", "'prompt' must be a non-blank string of valid characters"),
        ("prompt", "\u3000\n", "'prompt' must be a non-blank string"),
        ("prompt", {"role": "user"}, "'prompt' must be a non-blank string"),
        ("prompt_id", 7, "'prompt_id' must be a non-blank string"),
        ("reference", True, "'reference' must be a non-blank string, a finite number, or null"),
        ("reference", float("nan"), "'reference' must be .* got nan"),
        ("reference", " ", "'reference' must be .* got ' '"),
        ("reference", ["4"], r"'reference' must be .* got \['4'\]"),
        ("metadata", {"x": float("inf")}, "'metadata' must be an object that JSON can hold"),
        ("metadata", {"x": {1, 2}}, "'metadata' must be an object that JSON can hold"),
        ("metadata", "\ud800", "'metadata' must be an object that JSON can hold"),
        ("metadata", [1], "'metadata' must be an object; got"),
        ("share", ["train"], "'share' must be one of train, policy, ratio, "),
    ],
)
def test_values_of_the_wrong_kind_are_named(field, value, match):
    """Truth values, non-finite numbers, broken characters and containers are refused where text is wanted."""
    row = {"prompt_id": "a", "prompt": "1 + 1?", "suite": "s", field: value}
    with pytest.raises(DataContractError, match=rf"{match}.*\(file, row 1\)"):
        parse_rows([row], source="file")


def test_text_that_looks_like_a_chat_stays_text():
    """A prompt that quotes chat JSON survives the table as the text it is."""
    text = '[{"role": "user", "content": "hi"}]'
    rows = parse_rows([{"prompt_id": "a", "prompt": text, "suite": "s", "reference": "null"}], source="file")
    assert rows == table_to_rows(rows_to_table(rows))
    assert (text, "null") == (rows[0].prompt, rows[0].reference)
