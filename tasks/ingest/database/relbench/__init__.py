"""Databases in RelBench's layout."""
