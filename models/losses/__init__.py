"""Losses, by what they are of: classes, numbers, pairs and triples; what a loss is stands in `base.py`."""
