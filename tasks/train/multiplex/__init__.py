"""Vectors of nodes by relation: graphs with several relations within one node type."""
