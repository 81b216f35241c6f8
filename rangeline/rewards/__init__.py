"""Reward sources: each turns rollouts into reward intervals."""
