"""Which suites exist: lookup by the name that a prompt row carries.

To add a suite: write its class in a module of this room, add one line to `_FACTORIES`, and test that a rendered
reference verifies right and a perturbed one wrong.
"""

import difflib
from collections.abc import Callable, Mapping
from types import MappingProxyType

from rangeline.errors import ConfigError
from rangeline.suites.base import Suite
from rangeline.suites.candidate_choice import CandidateChoice
from rangeline.suites.grade_school_math import GradeSchoolMath
from rangeline.suites.multiple_choice import MultipleChoice
from rangeline.suites.reasoning_gym import ReasoningGym

_FACTORIES: Mapping[str, Callable[[], Suite]] = MappingProxyType(
    {
        "candidate_choice": CandidateChoice,
        "grade_school_math": GradeSchoolMath,
        "multiple_choice": MultipleChoice,
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
