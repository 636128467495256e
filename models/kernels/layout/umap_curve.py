"""UMAP's curve: how alike points of a layout count as, by their distance."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_PLACES, _REACH = 300, 3


def umap_curve(min_dist: float, spread: float = 1.0) -> tuple[float, float]:
    """Return a and b of 1 / (1 + a x^(2b)), the curve nearest to 1 up to min_dist, e^(-(x - min_dist) / spread) beyond.

    By least squares at 300 distances from 0 to 3 spread, as UMAP's authors fit it (arXiv:1802.03426, section 3.2 and
    their program).

    Args:
        min_dist: how near to each other points may come, 0 to spread.
        spread: how far apart near points lie, above 0.

    Raises:
        ValueError: numbers that are out of these ranges.
    """
    if not (0 < spread < np.inf and 0 <= min_dist <= spread):
        raise ValueError(f"min_dist={min_dist} must be from 0 to spread={spread}, and spread a number above 0")
    from scipy.optimize import curve_fit

    x = np.linspace(0, _REACH, _PLACES)[1:]  # in units of spread; every curve is 1 at 0
    near = min_dist / spread
    target = np.where(x < near, 1, np.exp(near - x))
    (log_a, log_b), _ = curve_fit(_curve, x, target, p0=(0, 0))
    a, b = np.exp((log_a, log_b))
    return float(a / spread ** (2 * b)), float(b)


def _curve(x: NDArray[np.float64], log_a: float, log_b: float) -> NDArray[np.float64]:
    """Return the curve by logarithms: a and b stay above 0."""
    return np.asarray(1 / (1 + np.exp(log_a) * x ** (2 * np.exp(log_b))))
