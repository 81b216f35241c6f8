"""How a stage tells how far it is: one callable, whatever shows it."""

from typing import Protocol


class Progress(Protocol):
    """Told of every step; shows a bar, a line, or nothing."""

    def __call__(self, label: str, done: int, total: int) -> None:
        """Say that `done` of `total` steps of `label` are finished."""


def silent(label: str, done: int, total: int) -> None:
    """Show nothing."""
