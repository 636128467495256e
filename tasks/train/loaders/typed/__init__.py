"""Loaders of typed graphs with times."""
