"""Models that are a vector for each node, learnt from samples or computed from the graph."""
