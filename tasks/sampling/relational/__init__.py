"""Sampling in graphs of several node types and relations, as of a moment."""
