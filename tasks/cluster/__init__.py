"""Ranks and shards on the machines of a Ray cluster, and the files that they read and write there."""
