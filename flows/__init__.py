"""Order, and what to do on failure; nothing is computed here."""
