"""Loaders of positive samples: pairs of nodes and triples."""
