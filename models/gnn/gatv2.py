"""GATv2 (Brody et al., ICLR 2022, https://arxiv.org/abs/2105.14491, equation 7): attention after the LeakyReLU."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from configs.registry import MODELS
from models.block import Block
from models.configs import Gatv2Config
from models.facts import GraphFacts
from models.gnn.gat import AttentionConv, AttentionModel
from models.kernels.attention.attention import gatv2_attention, gatv2_scores
from models.kernels.dense.linear import Linear
from models.layers.layer import own_rows


class Gatv2Conv(AttentionConv):
    """y_v = combine_h sum_{u in N(v) + v} a_uv^h W_s^h x_u, a = softmax_u <a^h, LeakyReLU(W_s^h x_u + W_t^h x_v)>."""

    def __init__(
        self, in_dim: int, heads: int, dim: int, *, mean: bool, config: Gatv2Config, edges: GraphFacts | None = None
    ) -> None:
        super().__init__(heads, dim, mean=mean, config=config, edges=edges)
        self.source = Linear(in_dim, heads * dim)
        self.target = Linear(in_dim, heads * dim)
        self.attention = nn.Parameter(torch.empty(heads, dim))
        for weight in (self.source.weight, self.target.weight, self.attention):
            nn.init.xavier_uniform_(weight)

    def forward(self, block: Block, x: Tensor) -> Tensor:
        """Convolve: x (num_src, in_dim) -> (num_dst, dim or heads * dim)."""
        source, target = self.split(self.source(x)), self.split(self.target(own_rows(block, x)))
        if self.carried is not None:
            adj = self.edges(block)
            scores = gatv2_scores(adj, source, target, self.attention, self.slope) + self.carried.scores(block, adj)
            return self.combine(self.attend(block, source, scores))
        y = gatv2_attention(self.edges(block), source, target, self.attention, self.slope, **self.drop())
        return self.combine(y)


@MODELS.register("gatv2")
class Gatv2(AttentionModel):
    """GATv2: attention that ranks neighbours differently for each node."""

    reads_degrees = False

    Config = Gatv2Config
    conv = Gatv2Conv
