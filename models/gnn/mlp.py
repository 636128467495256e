"""A model of single nodes: blind to edges, and with `preprocess.transforms: hops` not blind to the graph."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from configs.errors import RecipeError
from configs.registry import MODELS
from models.base import GraphModel
from models.block import Block
from models.configs import MlpConfig
from models.facts import GraphFacts
from models.kernels.dense.linear import Linear
from models.layers.layer import own_rows


class OwnRows(nn.Module):
    """y_v = W x_v + b: x (num_src, in_dim) -> (num_dst, out_dim)."""

    def __init__(self, in_dim: int, out_dim: int) -> None:
        super().__init__()
        self.own = Linear(in_dim, out_dim)

    def forward(self, block: Block, x: Tensor) -> Tensor:
        """Map the destinations' rows; edges play no part."""
        y: Tensor = self.own(own_rows(block, x))
        return y


@MODELS.register("mlp")
class Mlp(GraphModel):
    """An MLP on each node's own features: what edges must beat; with the transform hops it knows the graph too.

    Edges are never read: with the loader `neighbor` a fanout of 1 a layer is enough.
    """

    Config = MlpConfig

    def __init__(self, config: Any, facts: GraphFacts) -> None:
        """Raises RecipeError for an option that does nothing here."""
        if config.label_reuse:
            raise RecipeError("model.label_reuse does nothing in mlp, which sees no other node; remove it")
        super().__init__(config, facts)

    @property
    def reads_mean(self) -> bool:
        """Of neighbours nothing is read: a mean of theirs does as well as their rows, which need not be stored."""
        return bool(self.facts.feature_dim) and not self.facts.categories

    def make_conv(self, in_dim: int, out_dim: int) -> nn.Module:
        """Return one linear map."""
        return OwnRows(in_dim, out_dim)
