"""Pairs of nodes that are drawn beside edges."""
