"""Adapters between flows and the library: one module per outside tool, and thin Prefect tasks over the stages."""
