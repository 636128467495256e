"""LargeVis: layouts by the likelihood of a graph's edges (Tang and others, WWW 2016, arXiv:1602.00370)."""

from __future__ import annotations

from typing import Any

from configs.registry import MODELS
from models.kernels.layout.objectives import LayoutObjective
from models.layout.base import LayoutModel
from models.layout.configs import LargeVisConfig


@MODELS.register("largevis")
class LargeVis(LayoutModel):
    """LargeVis: near points are joined with probability 1 / (1 + distance^2), and drawn ones are pushed apart."""

    Config = LargeVisConfig

    @classmethod
    def objective(cls, config: Any) -> LayoutObjective:
        """Return LargeVis' forces."""
        return LayoutObjective("largevis", gamma=config.gamma, epsilon=config.epsilon)
