"""t-SNE's objective by negative sampling (Damrich and others, arXiv:2206.01816)."""

from __future__ import annotations

from typing import Any

from configs.registry import MODELS
from models.kernels.layout.objectives import LayoutObjective
from models.layout.base import LayoutModel
from models.layout.configs import TsneConfig


@MODELS.register("tsne")
class Tsne(LayoutModel):
    """t-SNE: pairs are near as a heavy-tailed kernel says, against the mean of that over all pairs."""

    Config = TsneConfig

    @classmethod
    def objective(cls, config: Any) -> LayoutObjective:
        """Return the forces."""
        return LayoutObjective("tsne", odds=config.similarity * config.negatives)
