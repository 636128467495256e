"""Explainers, one a file."""
