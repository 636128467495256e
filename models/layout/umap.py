"""UMAP's objective on the engine of all layouts (McInnes and others, arXiv:1802.03426)."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from configs.registry import MODELS
from models.kernels.layout.objectives import LayoutObjective
from models.kernels.layout.umap_curve import umap_curve
from models.layout.base import LayoutModel
from models.layout.configs import UmapConfig

_EPSILON = 1e-3
"""As the authors' program has it."""
_curve = lru_cache(umap_curve)


@MODELS.register("umap")
class Umap(LayoutModel):
    """UMAP: near points are joined by a curve that is flat up to min_dist, and drawn ones are pushed apart."""

    Config = UmapConfig

    @classmethod
    def objective(cls, config: Any) -> LayoutObjective:
        """Return UMAP's forces."""
        return LayoutObjective("umap", config.gamma, _EPSILON, *_curve(config.min_dist, config.spread))
