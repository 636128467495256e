"""Scorers of triples, one a file; what a scorer is stands in `models.knowledge.base`."""
