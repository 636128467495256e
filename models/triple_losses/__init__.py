"""Losses of triples' scores, one a file; what a loss is stands in `base.py`."""
