"""How much of a generated graph's labels its features give away."""

from __future__ import annotations

import math

from tasks.ingest.synthetic.configs import SyntheticConfig


def features_alone(config: SyntheticConfig) -> float:
    """Return the best possible test accuracy without the graph, against the noisy labels."""
    right = config.feature_accuracy
    return right * (1 - config.label_noise) + (1 - right) * config.label_noise / (config.num_classes - 1)


def bayes_accuracy(delta: float, num_classes: int) -> float:
    """Return P(class k's score is largest) for scores N(delta, 1) of class k and N(0, 1) of the others.

    Trapezoids over 12 standard deviations: exact to ten digits or so, since the integrand is smooth.
    """
    steps, low, high = 4000, -12.0, 12.0
    width = (high - low) / steps
    total = 0.0
    for i in range(steps + 1):
        x = low + i * width
        inside = 0.5 * math.erfc(-(x + delta) / math.sqrt(2)) if num_classes > 1 else 1.0
        total += math.exp(-x * x / 2) * inside ** (num_classes - 1)
    return total * width / math.sqrt(2 * math.pi)


def solve_delta(accuracy: float, num_classes: int) -> float:
    """Return the delta at which features alone reach `accuracy` (between 1/K and 1), by bisection."""
    low, high = 0.0, 12.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if bayes_accuracy(middle, num_classes) < accuracy else (low, middle)
    return (low + high) / 2
