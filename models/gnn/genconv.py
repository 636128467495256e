"""GENConv, the convolution of DeeperGCN (Li et al., 2020, https://arxiv.org/abs/2006.07739, equations 3 and 7)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from models.block import Block, aggregate
from models.kernels.dense.linear import Linear
from models.kernels.sparse.message import message_sum, softmax_aggregate
from models.layers.encoders import EdgeEncoder
from models.layers.layer import FusedSequential, hidden_layers, own_rows

if TYPE_CHECKING:
    from models.configs import DeepConfig
    from models.facts import GraphFacts

_EPS = 1e-7  # messages stay positive


class GenConv(nn.Module):
    """y_v = MLP(x_v + m_v), m_v = AGG_{u in N(v)} (ReLU(x_u + e_uv) + 1e-7).

    AGG is softmax: sum_u softmax_u(beta m_uv) m_uv; or mean, sum, max. beta is one number a convolution, learnt if
    asked for. Nothing of size E x D is stored unless edges carry numbers.
    """

    def __init__(self, in_dim: int, out_dim: int, facts: GraphFacts, config: DeepConfig) -> None:
        super().__init__()
        self.aggregator = config.aggregator
        self.edges = EdgeEncoder(facts, in_dim) if facts.has_edge_features else None
        start = torch.tensor(1.0 if config.beta is None else config.beta)
        self.beta: Tensor | None
        if config.aggregator == "softmax":
            self.beta = nn.Parameter(start) if config.learn_aggregator else nn.Buffer(start)
        else:
            self.beta = None
        hidden = hidden_layers(in_dim, 2 * in_dim, config.mlp_layers - 1, config.activation, norm=config.norm)
        self.mlp = FusedSequential(*hidden, Linear(2 * in_dim if hidden else in_dim, out_dim))

    def forward(self, block: Block, x: Tensor) -> Tensor:
        """Convolve: x (num_src, in_dim) -> (num_dst, out_dim)."""
        return self.mlp(own_rows(block, x) + self._aggregate(block, x))

    def _aggregate(self, block: Block, x: Tensor) -> Tensor:
        """Return m, (num_dst, in_dim)."""
        edge = None if self.edges is None else self.edges(block, x.dtype)
        if self.beta is not None:
            return softmax_aggregate(block.adjacency, x, self.beta, edge, _EPS)
        if edge is None:
            return aggregate(block, torch.relu(x) + _EPS, self.aggregator)
        summed = message_sum(block.adjacency, x, edge) + _EPS * block.counts.unsqueeze(1).to(x.dtype)
        if self.aggregator == "mean":
            return summed * block.adjacency.degree_scale().unsqueeze(1).to(x.dtype)
        return summed if block.scale is None else summed * block.scale.unsqueeze(1).to(x.dtype)
