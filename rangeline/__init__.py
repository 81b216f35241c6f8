"""Rangeline: post-train language models from calibrated reward intervals, with lineage that can be audited."""

__version__ = "0.1.0"
