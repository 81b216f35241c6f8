"""Lookup of suites by name."""

import pytest

from rangeline.errors import ConfigError
from rangeline.suites.registry import get_suite, suite_names


def test_every_name_gives_the_suite_of_that_name():
    """A suite is found under its own name."""
    names = suite_names()
    assert ("candidate_choice", "grade_school_math", "multiple_choice", "reasoning_gym") == names
    assert list(names) == [get_suite(name).name for name in names]


def test_unknown_name_is_refused_with_a_suggestion():
    """A misspelt suite is answered with the nearest name."""
    with pytest.raises(ConfigError, match=r"got 'reasoning_gim'. Did you mean 'reasoning_gym'\?"):
        get_suite("reasoning_gim")


def test_far_name_is_refused_with_the_known_names():
    """A name near none is answered with all names."""
    with pytest.raises(ConfigError, match=r"one of candidate_choice, .* got 'zzz'. Correct the 'suite'"):
        get_suite("zzz")
