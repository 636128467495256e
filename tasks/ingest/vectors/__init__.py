"""Vectors without edges: matrices, tables and images, to look at."""
