"""Graph convolutional network (Kipf and Welling, ICLR 2017, https://arxiv.org/abs/1609.02907, equation 2)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from configs.registry import MODELS
from models.base import GraphModel, ModelConfig
from models.block import Block, aggregate


class GcnConv(nn.Module):
    """y_v = W sum_{u in N(v) + v} x_u / sqrt((d_u + 1)(d_v + 1)), d the in-degrees without self-loops.

    On sampled blocks d are the degrees of the whole graph and the sum is scaled to its full expectation, so that
    training and layer-wise inference normalise alike (DGL's GraphConv takes the block's own degrees instead).
    """

    def __init__(self, in_dim: int, out_dim: int) -> None:
        super().__init__()
        self.linear = nn.Linear(in_dim, out_dim, bias=False)
        self.bias = nn.Parameter(torch.zeros(out_dim))
        self.map_first = out_dim < in_dim

    def forward(self, block: Block, x: Tensor) -> Tensor:
        """Convolve: x (num_src, in_dim) -> (num_dst, out_dim)."""
        if self.map_first:
            x = self.linear(x)
        norm = (block.degrees + 1).rsqrt().unsqueeze(1)
        x = x * norm
        y = (aggregate(block, x, "sum") + x[: block.num_dst]) * norm[: block.num_dst]
        return (y if self.map_first else self.linear(y)) + self.bias


@MODELS.register("gcn")
class Gcn(GraphModel):
    """GCN: symmetrically normalised sum over neighbours and the node itself."""

    class Config(ModelConfig):
        """Options."""

    def make_conv(self, in_dim: int, out_dim: int) -> nn.Module:
        """Return one convolution."""
        return GcnConv(in_dim, out_dim)
