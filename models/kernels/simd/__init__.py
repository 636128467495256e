"""Vectors of floats in numba, and what loops over them are made of."""
