"""Seeded mutants of the cutoff: each is a small change of the real source, and each dies by the laws."""

import inspect
import types

import numpy as np
import pytest
from cutoff_laws import LAWS

from rangeline.conformal import intervals

NAIVE = """upward_U = np.cumsum(weight_U)
    reached = np.array([(upward_U >= (1 - alpha) * (upward_U[-1] + w)).sum() for w in weight_N])
    return np.concatenate(([np.inf], score_U[::-1]))[reached]"""
"""A plain cumulative sum from below, without tolerance."""

MUTANTS = {
    # Inside the tolerance a tie is never an exact one, so that the side of the search alone changes nothing.
    "strict for weak inequality": (
        "budget_N = alpha * (1 + _RELATIVE_TOLERANCE)",
        "budget_N = alpha * (1 - _RELATIVE_TOLERANCE)",
    ),
    "dropped test mass": ("(upward_U[-1] + weight_N) - weight_N", "upward_U[-1] + 0 * weight_N"),
    "test mass missing from the total": ("(upward_U[-1] + weight_N)", "upward_U[-1]"),
    "test mass missing from the tail": ("(upward_U[-1] + weight_N) - weight_N", "(upward_U[-1] + weight_N)"),
    "constant test mass": (
        "np.exp(np.minimum(log_N - top, _MAX_LOG_RATIO))",
        "np.exp(0 * np.minimum(log_N, 0.0) - top)",
    ),
    "rank one too high": ("cutoff_U[num_within_N]", "cutoff_U[np.maximum(num_within_N - 1, 0)]"),
    "rank one too low": ("cutoff_U[num_within_N]", "cutoff_U[np.minimum(num_within_N + 1, len(score_U))]"),
    "weights decoupled from scores": ("weights=weight_C[keep]", "weights=np.sort(weight_C[keep])"),
    "naive cumulative sum": ("upward_U = np.cumsum(weight_U[::-1])", NAIVE),
    "no tolerance": ("budget_N = alpha * (1 + _RELATIVE_TOLERANCE)", "budget_N = alpha"),
    "wide tolerance": ("budget_N = alpha * (1 + _RELATIVE_TOLERANCE)", "budget_N = alpha * 1.02"),
    "tail holds its own score": ("np.concatenate(([0.0], upward_U[:-1]))", "upward_U"),
    "weight zero counted as one": (
        "weight_C = np.exp(log_C - top)",
        "weight_C = np.where(np.isneginf(log_C), 1.0, np.exp(log_C - top))",
    ),
    "ties kept apart": (
        "np.unique(score_C[keep], return_inverse=True)",
        "(np.sort(score_C[keep]), np.argsort(np.argsort(-score_C[keep])))",
    ),
    "one test rollout scales the batch": (
        "top = log_C.max(initial=-np.inf)",
        "top = max(log_C.max(initial=-np.inf), log_N.max(initial=-np.inf))",
    ),
    "weights not scaled": ("top = log_C.max(initial=-np.inf)", "top = 0.0 if len(log_C) else -np.inf"),
    "alpha for its complement": ("budget_N = alpha *", "budget_N = (1 - alpha) *"),
}


def mutant(old, new):
    """Make the cutoff of a copy of the module in which one piece of text is another."""
    source = inspect.getsource(intervals)
    assert 1 == source.count(old), old
    module = types.ModuleType("mutant")
    exec(compile(source.replace(old, new), "mutant", "exec"), module.__dict__)
    return module.weighted_cutoffs


def broken_laws(cutoffs):
    """Return the names of the laws that an implementation breaks; an error that is no refusal breaks a law too."""
    names = []
    for law in LAWS:
        try:
            with np.errstate(all="ignore"):
                law(cutoffs)
        except (ArithmeticError, AssertionError, LookupError, ValueError):
            names.append(law.__name__)
    return names


def test_unchanged_copy_lives():
    """The copy itself, with nothing changed, breaks no law: mutants die of their change alone."""
    assert [] == broken_laws(mutant("def weighted_cutoffs(", "def weighted_cutoffs("))


@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_dies(name):
    """The laws tell each mutant from the cutoff."""
    assert [] != broken_laws(mutant(*MUTANTS[name]))


def test_every_law_kills_a_mutant():
    """No law is idle: each is broken by a mutant."""
    broken = {law for change in MUTANTS.values() for law in broken_laws(mutant(*change))}
    assert {law.__name__ for law in LAWS} == broken
