"""TRL's GRPOTrainer beside this project's own update, on the same batch."""
