"""The trained policy: batches, objective, worker, checkpoints."""
