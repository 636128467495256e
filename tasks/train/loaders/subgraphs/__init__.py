"""Loaders whose batches are subgraphs."""
