"""Prompts: what a row must hold, where rows come from, and which pool each belongs to."""
