"""Scorer, density ratio, weighted intervals and coverage: the statistics of the product."""
