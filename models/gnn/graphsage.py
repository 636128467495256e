"""GraphSAGE (Hamilton et al., NeurIPS 2017, https://arxiv.org/abs/1706.02216, algorithm 1)."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from configs.errors import RecipeError
from configs.registry import MODELS
from models.base import GraphModel
from models.block import Block, aggregate
from models.configs import GraphSageConfig
from models.facts import GraphFacts
from models.kernels.dense.convolve import convolve
from models.kernels.dense.linear import Linear
from models.layers.edge_features import SummedEdges
from models.layers.layer import own_rows


class SageConv(nn.Module):
    """y_v = W_self x_v + W_neigh AGG_{u in N(v)} x_u.

    AGG is mean, sum or max (max first maps neighbours through a ReLU layer, the paper's pooling aggregator). Where
    edges carry features, W_edge AGG f_uv is added, by their mean where AGG is max.
    """

    returns_own_rows = True
    """Nobody else reads the result, no backward pass either: what follows may write over it."""

    def __init__(self, in_dim: int, out_dim: int, aggregator: str, edges: GraphFacts | None = None) -> None:
        """`edges`: of a graph whose edge features are read."""
        super().__init__()
        self.aggregator = aggregator
        self.own = Linear(in_dim, out_dim)
        self.neighbor = Linear(in_dim, out_dim, bias=False)
        self.pool = nn.Sequential(Linear(in_dim, in_dim), nn.ReLU()) if aggregator == "max" else None
        self.edges = None if edges is None else SummedEdges(edges, out_dim)

    def forward(self, block: Block, x: Tensor) -> Tensor:
        """Convolve: x (num_src, in_dim) -> (num_dst, out_dim)."""
        y = self._of_nodes(block, x)
        if self.edges is None:
            return y
        kind = "sum" if self.aggregator == "sum" else "mean"
        return y + self.edges(block, kind, lambda: (block.weight, block.target_scale(kind))).to(y.dtype)

    def _of_nodes(self, block: Block, x: Tensor) -> Tensor:
        if self.pool is not None:
            return self.own(own_rows(block, x)) + self.neighbor(aggregate(block, self.pool(x), "max"))
        has_mean = block.mean is not None
        return convolve(
            block.adjacency,
            x,
            self.own.weight,
            self.neighbor.weight,
            self.own.bias,
            edge_weight=block.weight,
            target_scale=None if has_mean else block.target_scale(self.aggregator),
            pooled=aggregate(block, x, self.aggregator) if has_mean else None,
        )


@MODELS.register("graphsage")
class GraphSage(GraphModel):
    """GraphSAGE: own features and a mean, max or sum of the neighbours'; the robust first choice."""

    reads_degrees = False

    uses_edge_weights = True
    uses_edge_features = True

    Config = GraphSageConfig

    def __init__(self, config: Any, facts: GraphFacts) -> None:
        """Raises RecipeError for a maximum of weighted neighbours."""
        if config.edge_weights and config.aggregator == "max":
            raise RecipeError("model.edge_weights does nothing with aggregator=max; remove it or take mean or sum")
        super().__init__(config, facts)

    @property
    def reads_mean(self) -> bool:
        """With mean or sum, on features of nodes as they are, without those of edges."""
        config = self.config
        is_plain_mean = config.aggregator != "max" and not config.edge_weights and self.edge_facts is None
        return self.encoder.is_plain and is_plain_mean

    def make_conv(self, in_dim: int, out_dim: int) -> nn.Module:
        """Return one convolution."""
        return SageConv(in_dim, out_dim, self.config.aggregator, self.edge_facts)
