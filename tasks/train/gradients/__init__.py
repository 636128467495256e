"""Trainings by gradients of batches: GNNs and models of typed graphs."""
