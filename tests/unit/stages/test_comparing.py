"""What a compared run may delete of itself: never what a later iteration of it reads."""

import pytest

from rangeline.config import IntervalConfig
from rangeline.stages.comparing import kept_iterations


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"adapt": "audit_window", "adapt_window": 20}, 20),
        ({"adapt": "audit_window", "adapt_window": 0}, 4),
        ({"adapt": "none", "adapt_window": 20}, 4),
    ],
)
def test_files_last_as_long_as_the_window_of_audits(settings, expected):
    """The repair reads the audits of a whole window; a run without it looks back a few iterations only."""
    assert expected == kept_iterations(IntervalConfig(**settings))
