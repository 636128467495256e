"""Which in-edges a batch takes, and its nodes' local numbers."""
