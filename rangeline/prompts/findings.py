"""What ingest finds wrong with prompts, and what is done about it: kept, dropped or refused, always reported.

A finding names prompt ids and a reason, never the text of a prompt. Duplicates are prompts that ask the same; an
unreadable reference is one that no other writing could ever equal; a long prompt has more token ids than allowed, by
the very ids that are sent.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from rangeline.errors import DataContractError
from rangeline.prompts.duplicates import find_duplicates
from rangeline.records import PromptRow

Handling = Literal["keep", "drop", "refuse"]
SHOWN_IDS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One prompt with something wrong."""

    prompt_id: str
    kind: Literal["duplicate", "unreadable reference", "long prompt"]
    reason: str


def duplicate_findings(rows: Sequence[PromptRow]) -> tuple[Finding, ...]:
    """Return a finding for each prompt that asks the same as one before it.

    Raises
    ------
    DataContractError
        If a prompt id occurs twice.
    """
    return tuple(
        Finding(prompt_id=other, kind="duplicate", reason=f"asks the same as '{first}'")
        for first, *others in find_duplicates(rows)
        for other in others
    )


def reference_findings(rows: Sequence[PromptRow], reads: Callable[[PromptRow], bool]) -> tuple[Finding, ...]:
    """Return a finding for each labelled prompt whose reference the checker cannot read.

    Parameters
    ----------
    rows
        Prompt rows; unlabelled ones are left out.
    reads
        Says of a labelled row whether its suite reads the reference.
    """
    return tuple(
        Finding(prompt_id=row.prompt_id, kind="unreadable reference", reason=f"suite '{row.suite}' cannot read it")
        for row in rows
        if row.reference is not None and not reads(row)
    )


def length_findings(
    rows: Sequence[PromptRow], num_tokens: Callable[[PromptRow], int], limit: int
) -> tuple[Finding, ...]:
    """Return a finding for each prompt of more than `limit` token ids.

    Parameters
    ----------
    rows
        Prompt rows.
    num_tokens
        Counts the token ids of a row as they are sent, template included.
    limit
        Largest allowed count.
    """
    counts = [(row.prompt_id, num_tokens(row)) for row in rows]
    return tuple(
        Finding(prompt_id=prompt_id, kind="long prompt", reason=f"{count} token ids, {limit} are allowed")
        for prompt_id, count in counts
        if count > limit
    )


def handle(
    rows: Sequence[PromptRow], findings: Sequence[Finding], handling: Handling, *, setting: str
) -> tuple[PromptRow, ...]:
    """Return the rows that are left after findings of one kind are handled.

    Parameters
    ----------
    rows
        Prompt rows.
    findings
        What was found in them.
    handling
        `keep` leaves them, `drop` leaves them out, `refuse` raises.
    setting
        Name of the setting that decides, for the message.

    Raises
    ------
    DataContractError
        If there are findings and they are refused; the first ten ids are listed.
    """
    if findings and handling == "refuse":
        shown = "; ".join(f"'{one.prompt_id}': {one.reason}" for one in findings[:SHOWN_IDS])
        msg = (
            f"'prompts' must hold no {findings[0].kind}; got {len(findings)} ({shown}). Correct the rows, or set "
            f"{setting} to drop or keep."
        )
        raise DataContractError(msg)
    gone = {one.prompt_id for one in findings} if handling == "drop" else set()
    return tuple(row for row in rows if row.prompt_id not in gone)
