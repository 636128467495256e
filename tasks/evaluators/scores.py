"""From raw scores to chances."""

from __future__ import annotations

import numpy as np

from tasks.evaluators.metrics import Floats


def probabilities(scores: Floats) -> Floats:
    """Softmax of each row, (n, C) float32."""
    shifted = np.exp(scores - scores.max(axis=1, keepdims=True))
    return shifted / shifted.sum(axis=1, keepdims=True)


def sigmoid(score: Floats) -> Floats:
    """Return 1 / (1 + exp(-score)) without overflow."""
    small = np.exp(-np.abs(score))
    return np.where(score >= 0, 1 / (1 + small), small / (1 + small))
