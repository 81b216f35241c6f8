"""Sampling completions from a policy, and the log-probabilities of tokens."""
