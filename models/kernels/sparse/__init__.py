"""Operators over a graph's edges: products, softmax, messages, pooling; nothing of size E x D is stored."""
