"""GENConv, the convolution of DeeperGCN (Li et al., 2020, https://arxiv.org/abs/2006.07739, equations 3 to 8)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from models.block import Block, aggregate
from models.kernels.dense.linear import Linear
from models.kernels.sparse.message import message_sum, power_aggregate, softmax_aggregate
from models.layers.encoders import EdgeEncoder
from models.layers.layer import Stack, hidden_layers, own_rows

if TYPE_CHECKING:
    from models.configs import DeepConfig
    from models.facts import GraphFacts

_EPS = 1e-7  # messages stay positive


def _number(start: float, *, learn: bool) -> Tensor:
    number: Tensor = nn.Parameter(torch.tensor(start)) if learn else nn.Buffer(torch.tensor(start))
    return number


class MessageNorm(nn.Module):
    """s |x_v| m_v / |m_v|, s learnt or 1: x and m (n, D) -> (n, D) (equation 8)."""

    def __init__(self, *, learn: bool) -> None:
        super().__init__()
        self.scale = _number(1.0, learn=learn)

    def forward(self, x: Tensor, message: Tensor) -> Tensor:
        """Give messages the length of the node's own vector."""
        return F.normalize(message, dim=1) * x.norm(dim=1, keepdim=True) * self.scale.to(x.dtype)


class GenConv(nn.Module):
    """y_v = MLP(x_v + m_v), m_v = AGG_{u in N(v)} (ReLU(x_u + e_uv) + 1e-7), optionally with message norm.

    AGG is softmax: sum_u softmax_u(beta m_uv) m_uv; power: (mean_u m_uv^p)^(1/p); or mean, sum, max. beta and p are
    one number a convolution, learnt if asked for. Nothing of size E x D is stored unless edges carry numbers.
    """

    def __init__(self, in_dim: int, out_dim: int, facts: GraphFacts, config: DeepConfig) -> None:
        super().__init__()
        self.aggregator = config.aggregator
        self.edges = EdgeEncoder(facts, in_dim) if facts.has_edge_features else None
        start = {"softmax": config.beta, "power": config.power}.get(config.aggregator)
        start = 1.0 if start is None else start
        has_one = config.aggregator in ("softmax", "power")
        self.sharpness = _number(start, learn=config.learn_aggregator) if has_one else None
        """beta or p."""
        self.message_norm = MessageNorm(learn=config.learn_message_scale) if config.message_norm else None
        hidden = hidden_layers(in_dim, 2 * in_dim, config.mlp_layers - 1, config.activation, norm=config.norm)
        self.mlp = Stack(*hidden, Linear(2 * in_dim if hidden else in_dim, out_dim))

    def forward(self, block: Block, x: Tensor) -> Tensor:
        """Convolve: x (num_src, in_dim) -> (num_dst, out_dim)."""
        own = own_rows(block, x)
        message = self._aggregate(block, x)
        if self.message_norm is not None:
            message = self.message_norm(own, message)
        return self.mlp(own + message)

    def _aggregate(self, block: Block, x: Tensor) -> Tensor:
        """Return m, (num_dst, in_dim)."""
        edge = None if self.edges is None else self.edges(block, x.dtype)
        if self.aggregator == "softmax":
            assert self.sharpness is not None
            return softmax_aggregate(block.adjacency, x, self.sharpness, edge, _EPS)
        if self.aggregator == "power":
            assert self.sharpness is not None
            return power_aggregate(block.adjacency, x, self.sharpness, edge, _EPS)
        if edge is None:
            return aggregate(block, torch.relu(x) + _EPS, self.aggregator)
        summed = message_sum(block.adjacency, x, edge) + _EPS * block.counts.unsqueeze(1).to(x.dtype)
        if self.aggregator == "mean":
            return summed * block.adjacency.degree_scale().unsqueeze(1).to(x.dtype)
        return summed if block.scale is None else summed * block.scale.unsqueeze(1).to(x.dtype)
