"""Check that references score right against themselves.

The reference check (a canary) puts each rendered reference through its suite's own verification; its pass share is
right verdicts over labelled rows. Duplicates and clusters come from `rangeline.prompts.duplicates`, generated problems
from `rangeline.prompts.generators`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from rangeline.errors import BadInputError, ConfigError, ReferenceCheckError
from rangeline.prompts.duplicates import find_duplicates, near_duplicate_clusters
from rangeline.prompts.generators import generate_problems
from rangeline.records import PromptRow

__all__ = [
    "ReferenceReport",
    "RejectedReference",
    "check_references",
    "find_duplicates",
    "generate_problems",
    "near_duplicate_clusters",
]

SHOWN_ROWS = 10


class _Verdict(Protocol):
    @property
    def reward(self) -> float | None: ...

    @property
    def reason(self) -> str: ...


class ReferenceVerifier(Protocol):
    """What the reference check needs of a suite."""

    def render_reference(self, row: PromptRow) -> str:
        """Return the completion that would be right."""

    def verify(self, completion: str, row: PromptRow) -> _Verdict:
        """Return the verdict on a completion."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedReference:
    """A reference that does not score right against itself."""

    prompt_id: str
    suite: str
    reference: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceReport:
    """Outcome of the reference check."""

    num_checked: int
    """Labelled rows."""
    num_passed: int
    passed_share: float | None
    """num_passed over num_checked; None where no row is labelled."""
    rejected: tuple[RejectedReference, ...]
    """Rows that must not be used: few enough to pass the floor."""


def _rejection(row: PromptRow, suite: ReferenceVerifier) -> str | None:
    try:
        verdict = suite.verify(suite.render_reference(row), row)
    except BadInputError as error:
        # A reference its suite cannot read is a finding of this check, not its failure.
        return str(error)
    return None if verdict.reward == 1.0 else verdict.reason


def check_references(
    rows: Sequence[PromptRow], suites: Mapping[str, ReferenceVerifier], floor: float = 0.995
) -> ReferenceReport:
    """Verify the rendered reference of every labelled row through the real suite.

    Parameters
    ----------
    rows
        Prompt rows; unlabelled ones are left out.
    suites
        Suite of each name that occurs in labelled rows.
    floor
        Smallest share of references that must score right, in [0, 1].

    Returns
    -------
    ReferenceReport
        With the rows that failed although the share reached the floor.

    Raises
    ------
    ReferenceCheckError
        If the share of right references is below the floor; the first ten failing rows are listed.
    ConfigError
        If a labelled row's suite is not among the suites.
    """
    labelled = [row for row in rows if row.reference is not None]
    rejected = []
    for row in labelled:
        if row.suite not in suites:
            msg = (
                f"'suite' must be one of {', '.join(sorted(suites))}; got '{row.suite}' (prompt '{row.prompt_id}'). "
                "Correct the row."
            )
            raise ConfigError(msg)
        reason = _rejection(row, suites[row.suite])
        if reason is not None:
            rejected.append(
                RejectedReference(
                    prompt_id=row.prompt_id, suite=row.suite, reference=row.reference or "", reason=reason
                )
            )
    num_passed = len(labelled) - len(rejected)
    share = num_passed / len(labelled) if labelled else None
    if share is not None and share < floor:
        shown = "; ".join(
            f"'{item.prompt_id}': {item.reference[:40]!r}, {item.reason}" for item in rejected[:SHOWN_ROWS]
        )
        msg = (
            f"'references' must score right against themselves in at least {floor:.1%} of rows; got {share:.1%}, "
            f"{len(rejected)} of {len(labelled)} wrong ({shown}). Correct these rows or choose another suite."
        )
        raise ReferenceCheckError(msg)
    return ReferenceReport(
        num_checked=len(labelled), num_passed=num_passed, passed_share=share, rejected=tuple(rejected)
    )
