"""The frozen judge: a rubric, its questions, and the judgment state of each rollout."""
