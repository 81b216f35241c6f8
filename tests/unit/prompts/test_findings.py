"""Findings of ingest: each kind is found, reported by id, and handled as asked."""

import pytest

from rangeline.errors import DataContractError
from rangeline.prompts.findings import duplicate_findings, handle, length_findings, reference_findings
from rangeline.records import PromptRow


def _row(prompt_id, prompt="q", reference="1"):
    return PromptRow(prompt_id=prompt_id, prompt=prompt, suite="s", reference=reference)


ROWS = (_row("a", "What is 1 + 1?"), _row("b", "what is 1+1"), _row("c", "Another?", None))


def test_repeated_question_names_the_first():
    """A prompt that asks the same as one before is found, in any spelling."""
    (finding,) = duplicate_findings(ROWS)
    assert ("b", "duplicate", "asks the same as 'a'") == (finding.prompt_id, finding.kind, finding.reason)


def test_unreadable_reference_is_found_on_labelled_rows_only():
    """The checker is asked about every labelled row."""
    assert ["a", "b"] == [one.prompt_id for one in reference_findings(ROWS, lambda _: False)]
    assert () == reference_findings(ROWS, lambda _: True)


def test_length_is_counted_on_token_ids():
    """A prompt above the limit is found, one at the limit is not."""
    (finding,) = length_findings(ROWS, lambda row: len(row.prompt), 13)
    assert ("a", "14 token ids, 13 are allowed") == (finding.prompt_id, finding.reason)
    assert () == length_findings(ROWS, lambda row: len(row.prompt), 14)


@pytest.mark.parametrize(("handling", "left"), [("keep", ["a", "b", "c"]), ("drop", ["a", "c"])])
def test_findings_are_handled_as_asked(handling, left):
    """Kept rows stay, dropped ones go."""
    findings = duplicate_findings(ROWS)
    assert left == [row.prompt_id for row in handle(ROWS, findings, handling, setting="data.duplicates")]


def test_refused_findings_list_ids_and_the_setting():
    """A refused kind stops with ids, reasons and the setting that decides; no text of a prompt is shown."""
    with pytest.raises(DataContractError, match=r"no duplicate; got 1 \('b': asks .*data.duplicates") as caught:
        handle(ROWS, duplicate_findings(ROWS), "refuse", setting="data.duplicates")
    assert "What is" not in str(caught.value)
    assert ROWS == handle(ROWS, (), "refuse", setting="data.duplicates")
