"""Problem families: render a prompt, extract an answer, verify it."""
