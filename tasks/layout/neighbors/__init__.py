"""Vectors to the graph of their nearest neighbours, with weights."""
