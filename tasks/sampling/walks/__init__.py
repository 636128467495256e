"""Random walks and what they draw."""
