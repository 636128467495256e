"""Attention over in-edges in one pass."""
