"""The contract of prompt rows, their files and their tables."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rangeline.errors import DataContractError
from rangeline.prompts.contract import parse_rows, read_rows, rows_to_dicts, rows_to_table, table_to_rows
from rangeline.records import ChatMessage, PromptRow

ROWS = (
    PromptRow(
        prompt_id="a", prompt="1 + 1?", suite="reasoning_gym", reference="2", metadata={"n": [1, 2.5], "k": None}
    ),
    PromptRow(prompt_id="b", prompt='Which, "x"\nor y?', suite="multiple_choice", domain="letters"),
    PromptRow(
        prompt_id="c",
        prompt=(ChatMessage("system", "Be brief."), ChatMessage("user", "\u00bfQu\u00e9?")),
        suite="s",
        reference="[]",
        share="evaluation",
    ),
)


def _raw(**changes):
    return {"prompt_id": "a", "prompt": "1 + 1?", "suite": "s"} | changes


def test_defaults_of_optional_fields():
    """A row with the three required fields is unlabelled, of domain default and share train."""
    expected = PromptRow(prompt_id="a", prompt="1 + 1?", suite="s")
    assert (expected,) == parse_rows([_raw()], source="f")
    absent = dict.fromkeys(("reference", "domain", "share", "metadata", "prompt_format"))
    assert (expected,) == parse_rows([_raw(**absent)], source="f")


@pytest.mark.parametrize(("given", "expected"), [(42, "42"), (0.1, "0.1"), ("042", "042"), (None, None), (0, "0")])
def test_references_become_text(given, expected):
    """Numbers become their shortest text, text stays, null is unlabelled; 0 is a reference."""
    assert expected == parse_rows([_raw(reference=given)], source="f")[0].reference


def test_chat_prompt_becomes_messages():
    """A list of messages becomes a tuple of records."""
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]
    row = parse_rows([_raw(prompt=messages)], source="f")[0]
    assert (ChatMessage("user", "hi"), ChatMessage("assistant", "ho")) == row.prompt


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"refrence": "2"}, r"'refrence' must be one of the fields prompt_id, .* \(did you mean 'reference'\?\)"),
        ({"zzz": 1}, r"'zzz' must be one of the fields prompt_id, .*; got 1 "),
        ({"prompt_id": ""}, "'prompt_id' must be a non-blank string .*; got ''"),
        ({"prompt": "  "}, "'prompt' must be a non-blank string .*; got '  '"),
        ({"prompt": []}, r"'prompt' must hold at least one chat message; got \[\]"),
        ({"prompt": ["hi"]}, "'prompt' must be chat messages with 'role' and 'content'; got 'hi'"),
        ({"prompt": [{"role": "user"}]}, "'prompt' must be chat messages with 'role' and 'content'"),
        (
            {"prompt": [{"role": "bot", "content": "x"}]},
            "'prompt.role' must be one of system, user, assistant; got 'bot'",
        ),
        ({"prompt": [{"role": "user", "content": ""}]}, "'prompt.content' must be a non-blank string"),
        ({"prompt_format": "chat"}, "'prompt' must be JSON text where 'prompt_format' is chat"),
        ({"prompt_format": "html"}, "'prompt_format' must be one of text, chat; got 'html'"),
        ({"suite": None}, "'suite' must be a non-blank string .*; got None"),
        ({"domain": ""}, "'domain' must be a non-blank string"),
        ({"share": "test"}, "'share' must be one of train, policy, ratio, .*; got 'test'"),
        ({"share": "audit"}, "'reference' must be present where 'share' is audit; got None"),
        (
            {"reference": ""},
            "'reference' must be a non-blank string, a finite number, or null where unlabelled; got ''",
        ),
        ({"reference": float("inf")}, "'reference' must be .*; got inf"),
        ({"metadata": "x"}, "'metadata' must be an object; got 'x'"),
    ],
)
def test_errors_name_file_row_field_rule_and_value(changes, match):
    """Each broken rule names where and what."""
    with pytest.raises(DataContractError, match=rf"{match}.*\(rows.csv, row 2\). Correct the row."):
        parse_rows([_raw(prompt_id="first"), _raw(**changes)], source="rows.csv")


def test_long_values_are_shortened():
    """A value is shown with 80 characters at most."""
    with pytest.raises(DataContractError, match=r"got '(1 ){38}\.\.\. \(f, row 1\)"):
        parse_rows([_raw(share="1 " * 500)], source="f")


def test_prompt_ids_are_unique():
    """A second row of one id names both rows."""
    with pytest.raises(
        DataContractError, match=r"'prompt_id' must be unique \(row 1 has it too\); got 'a' \(f, row 3\)"
    ):
        parse_rows([_raw(), _raw(prompt_id="b"), _raw()], source="f")


def test_tables_lose_nothing():
    """Rows to a table or to dicts and back are the same rows, whatever is labelled."""
    for rows in (ROWS, ROWS[1:2], ()):
        assert rows == table_to_rows(rows_to_table(rows))
        assert rows == table_to_rows(rows_to_dicts(rows))
    assert rows_to_table(ROWS).schema == rows_to_table(()).schema


def test_three_formats_give_equal_rows(tmp_path):
    """JSONL, CSV and Parquet of one content are read alike."""
    dicts = rows_to_dicts(ROWS)
    lines = [json.dumps(cells | {"metadata": json.loads(cells["metadata"])}) for cells in dicts]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    pq.write_table(rows_to_table(ROWS), tmp_path / "rows.parquet")
    frame = rows_to_table(ROWS).to_pandas()
    frame.to_csv(tmp_path / "rows.csv", index=False)
    for name in ("rows.jsonl", "rows.csv", "rows.parquet"):
        assert ROWS == parse_rows(read_rows(tmp_path / name), source=name)


def test_parquet_may_hold_native_messages_and_metadata(tmp_path):
    """Lists of messages and structs in Parquet are read as they are."""
    native = {"prompt": [{"role": "user", "content": "hi"}], "metadata": {"k": 1}, "reference": 3}
    pq.write_table(pa.Table.from_pylist([_raw(**native)]), tmp_path / "rows.parquet")
    row = parse_rows(read_rows(tmp_path / "rows.parquet"), source="f")[0]
    assert ((ChatMessage("user", "hi"),), {"k": 1}, "3") == (row.prompt, row.metadata, row.reference)


def test_empty_csv_cells_are_absent(tmp_path):
    """An empty cell of a CSV file is an absent field, so an empty reference means unlabelled."""
    (tmp_path / "rows.csv").write_text("prompt_id,prompt,suite,reference,share\na,1+1,s,,\n", encoding="utf-8")
    assert [{"prompt_id": "a", "prompt": "1+1", "suite": "s"}] == read_rows(tmp_path / "rows.csv")
