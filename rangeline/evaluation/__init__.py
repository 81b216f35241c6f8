"""Metrics with clustered intervals, comparisons and the report page."""
