"""What became of what: the ledger of runs, kept bytes, the graph of the workspace, its walks, exports and pictures."""
