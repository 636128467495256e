"""LargeVis, t-SNE and UMAP: what draws neighbours together and pushes drawn points apart."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from configs.registry import MODELS
from models.kernels.layout.objectives import LayoutObjective
from models.layout.base import LayoutModel
from models.layout.configs import LargeVisConfig, TsneConfig, UmapConfig

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

    def curve(x: NDArray[np.float64], log_a: float, log_b: float) -> NDArray[np.float64]:
        return np.asarray(1 / (1 + np.exp(log_a) * x ** (2 * np.exp(log_b))))  # by logarithms: both stay above 0

    (log_a, log_b), _ = curve_fit(curve, x, target, p0=(0, 0))
    a, b = np.exp((log_a, log_b))
    return float(a / spread ** (2 * b)), float(b)


@MODELS.register("largevis")
class LargeVis(LayoutModel):
    """LargeVis: near points are joined with probability 1 / (1 + distance^2), and drawn ones are pushed apart.

    Layouts by the likelihood of a graph's edges (Tang and others, WWW 2016, arXiv:1602.00370).
    """

    Config = LargeVisConfig

    @classmethod
    def objective(cls, config: Any) -> LayoutObjective:
        """Return LargeVis' forces."""
        return LayoutObjective("largevis", gamma=config.gamma, epsilon=config.epsilon)


@MODELS.register("tsne")
class Tsne(LayoutModel):
    """t-SNE: pairs are near as a heavy-tailed kernel says, against the mean of that over all pairs.

    By negative sampling (Damrich and others, arXiv:2206.01816).
    """

    Config = TsneConfig

    @classmethod
    def objective(cls, config: Any) -> LayoutObjective:
        """Return the forces."""
        return LayoutObjective("tsne", odds=config.similarity * config.negatives)


_EPSILON = 1e-3
"""As the authors' program has it."""
_umap_curve = lru_cache(umap_curve)


@MODELS.register("umap")
class Umap(LayoutModel):
    """UMAP: near points are joined by a curve that is flat up to min_dist, and drawn ones are pushed apart.

    McInnes and others, arXiv:1802.03426, on the engine of all layouts.
    """

    Config = UmapConfig

    @classmethod
    def objective(cls, config: Any) -> LayoutObjective:
        """Return UMAP's forces."""
        return LayoutObjective("umap", config.gamma, _EPSILON, *_umap_curve(config.min_dist, config.spread))
