"""Code that the vLLM server runs in its own environment: nothing here imports Rangeline or is imported by it."""
