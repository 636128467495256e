"""Graph convolutional network (Kipf and Welling, ICLR 2017, https://arxiv.org/abs/1609.02907, equation 2)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from configs.registry import MODELS
from models.base import GraphModel
from models.block import Block
from models.configs import GcnConfig
from models.facts import GraphFacts
from models.kernels.dense.linear import Linear
from models.kernels.sparse.spmm import weighted_sum
from models.layers.edge_features import Scales, SummedEdges
from models.layers.layer import own_rows


def propagate(block: Block, x: Tensor) -> Tensor:
    """Return y_v = sum_{u in N(v) + v} w_uv x_u / sqrt((d_u + 1)(d_v + 1)): x (num_src, D) -> (num_dst, D).

    d are the in-degrees without self-loops, w_vv = 1, and w_uv = 1 unless the edges carry weights (which leave the
    degrees alone, as in DGL's GraphConv). On sampled blocks d are the degrees of the whole graph and the sum is scaled
    to its full expectation, so that training and layer-wise inference normalise alike (DGL takes the block's own).
    """
    norm, scale = _scales(block)
    target_norm = norm[: block.num_dst]
    y = weighted_sum(block.adjacency, x, block.weight, source_scale=norm, target_scale=scale)
    return y + own_rows(block, x) * target_norm.square().unsqueeze(1).to(x.dtype)


def _scales(block: Block) -> tuple[Tensor, Tensor]:
    """Return what sources (num_src,) and sums over in-edges (num_dst,) are multiplied by."""
    norm = (block.degrees + 1).rsqrt()
    target_norm = norm[: block.num_dst]
    return norm, target_norm if block.scale is None or block.weight is not None else target_norm * block.scale


class GcnConv(nn.Module):
    """y = P x W + b, P the symmetrically normalised adjacency matrix with self-loops (`propagate`).

    Where edges carry features f, messages are W x_u + U f_uv, normalised alike.
    """

    def __init__(self, in_dim: int, out_dim: int, edges: GraphFacts | None = None) -> None:
        """`edges`: of a graph whose edge features are read."""
        super().__init__()
        self.linear = Linear(in_dim, out_dim, bias=False)
        self.bias = nn.Parameter(torch.zeros(out_dim))
        self.map_first = out_dim < in_dim
        self.edges = None if edges is None else SummedEdges(edges, out_dim)

    def forward(self, block: Block, x: Tensor) -> Tensor:
        """Convolve: x (num_src, in_dim) -> (num_dst, out_dim)."""
        y = propagate(block, self.linear(x)) if self.map_first else self.linear(propagate(block, x))
        if self.edges is not None:

            def scales() -> Scales:
                norm, scale = _scales(block)
                of_edges = norm[block.indices.long()]
                return of_edges if block.weight is None else of_edges * block.weight, scale

            y = y + self.edges(block, "gcn", scales).to(y.dtype)
        return y + self.bias.to(y.dtype)


@MODELS.register("gcn")
class Gcn(GraphModel):
    """GCN: symmetrically normalised sum over neighbours and the node itself."""

    uses_edge_weights = True
    uses_edge_features = True

    Config = GcnConfig

    def make_conv(self, in_dim: int, out_dim: int) -> nn.Module:
        """Return one convolution."""
        return GcnConv(in_dim, out_dim, self.edge_facts)
