"""Which suites exist: lookup by the name that a prompt row carries.

To add a suite: write its class in a module of this room, add one line to `_FACTORIES`, and test that a rendered
reference verifies right and a perturbed one wrong.
"""

import difflib
from collections.abc import Callable, Mapping
from types import MappingProxyType

from rangeline.errors import ConfigError
from rangeline.records import PromptRow
from rangeline.suites.base import Suite
from rangeline.suites.candidate_choice import CandidateChoice
from rangeline.suites.competition_math import CompetitionMath
from rangeline.suites.free_form import FreeForm
from rangeline.suites.grade_school_math import GradeSchoolMath
from rangeline.suites.multiple_choice import MultipleChoice
from rangeline.suites.open_ended import OpenEnded
from rangeline.suites.reasoning_gym import ReasoningGym, is_numeric

_FACTORIES: Mapping[str, Callable[[], Suite]] = MappingProxyType(
    {
        "candidate_choice": CandidateChoice,
        "competition_math": CompetitionMath,
        "free_form": FreeForm,
        "grade_school_math": GradeSchoolMath,
        "multiple_choice": MultipleChoice,
        "open_ended": OpenEnded,
        "reasoning_gym": ReasoningGym,
    }
)


def suite_names() -> tuple[str, ...]:
    """Return the names of all suites, sorted."""
    return tuple(sorted(_FACTORIES))


def get_suite(name: str) -> Suite:
    """Return the suite of a name.

    Raises
    ------
    ConfigError
        If no suite has this name; the message names those that exist.

    Examples
    --------
    >>> get_suite("reasoning_gym").name
    'reasoning_gym'
    """
    if name not in _FACTORIES:
        close = difflib.get_close_matches(name, _FACTORIES, n=1)
        hint = f"Did you mean '{close[0]}'?" if close else "Correct the 'suite' of the rows."
        msg = f"'suite' must be one of {', '.join(suite_names())}; got '{name}'. {hint}"
        raise ConfigError(msg)
    return _FACTORIES[name]()


def asks_for_answer_alone(row: PromptRow) -> bool:
    """Say whether a row's suite asks for an answer and nothing before it; a prompt that is a chat asks for itself.

    Examples
    --------
    >>> asks_for_answer_alone(PromptRow(prompt_id="p", prompt="3 + 4", suite="reasoning_gym"))
    True
    >>> asks_for_answer_alone(PromptRow(prompt_id="p", prompt="3 + 4", suite="grade_school_math"))
    False
    """
    if not isinstance(row.prompt, str):
        return False
    return row.suite == CandidateChoice.name or (row.suite == ReasoningGym.name and is_numeric(row))
