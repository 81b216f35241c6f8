"""Names of reward sources."""

import pytest

from rangeline.errors import ConfigError
from rangeline.rewards.registry import source_facts, stages_needed


def test_unknown_source_names_a_near_one():
    """A misspelt source is an error that names what was meant."""
    with pytest.raises(ConfigError, match=r"got 'majorty'\. Did you mean 'majority'"):
        source_facts("majorty")


def test_stages_are_needed_once():
    """Two sources of the judge need one calibration; the verifier needs none."""
    assert ("calibration",) == stages_needed(["judge_interval", "student_t", "verifier"])
    assert () == stages_needed(["verifier", "majority"])
