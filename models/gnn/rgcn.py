"""Relational GCN (Schlichtkrull et al., ESWC 2018, https://arxiv.org/abs/1703.06103, equations 2 and 3)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from configs.registry import MODELS
from models.base import GraphModel
from models.block import Block
from models.configs import RgcnConfig
from models.kernels.dense.linear import Linear
from models.kernels.sparse.adjacency import Adjacency
from models.kernels.sparse.spmm import weighted_sum
from models.layers.encoders import type_sizes
from models.layers.layer import own_rows


def by_relation(block: Block, num_relations: int) -> list[Adjacency]:
    """Return the edges of each relation."""
    if num_relations == 1:
        return [block.adjacency]
    assert block.edge_type is not None, "the loader gave no relations"
    order = torch.argsort(block.edge_type, stable=True)  # within a relation edges stay by destination
    targets = block.adjacency.targets()
    parts = []
    for edges in torch.split(order, type_sizes(block.edge_type, num_relations, block.edge_type_counts)):
        # Searching needs not wait for a GPU, where counting asks for a size.
        indptr = torch.searchsorted(targets[edges], torch.arange(block.num_dst + 1, device=targets.device))
        parts.append(Adjacency(indptr, block.indices[edges], block.num_src))
    return parts


class RelationalConv(nn.Module):
    """y_v = W_0 x_v + sum_r W_r mean_{u in N_r(v)} x_u + b; W_r is free, or sum_b a_rb V_b of a few bases V.

    One sparse product a relation; no messages are stored. Sampled neighbours are averaged as they are.
    """

    def __init__(self, in_dim: int, out_dim: int, num_relations: int, num_bases: int | None) -> None:
        super().__init__()
        self.num_relations = num_relations
        self.own = Linear(in_dim, out_dim)
        self.maps = nn.Parameter(torch.empty(num_bases or num_relations, in_dim, out_dim))
        self.coefficients = nn.Parameter(torch.empty(num_relations, num_bases)) if num_bases else None
        for matrix in [*self.maps] if self.coefficients is None else [*self.maps, self.coefficients]:
            nn.init.xavier_uniform_(matrix)
        self.map_first = out_dim < in_dim

    def forward(self, block: Block, x: Tensor) -> Tensor:
        """Convolve: x (num_src, in_dim) -> (num_dst, out_dim)."""
        y: Tensor = self.own(own_rows(block, x))
        relations = block.cached("by_relation", lambda: by_relation(block, self.num_relations))
        maps = self.maps if self.coefficients is None else torch.einsum("rb,bio->rio", self.coefficients, self.maps)
        for adj, matrix in zip(relations, maps, strict=True):
            scale = adj.degree_scale()
            if self.map_first:  # aggregate whichever side is narrower
                y = y + weighted_sum(adj, x @ matrix, target_scale=scale)
            else:
                y = y + weighted_sum(adj, x, target_scale=scale) @ matrix
        return y


@MODELS.register("rgcn")
class Rgcn(GraphModel):
    """R-GCN: a map for each relation, and for each node type's features; for graphs with several types of them."""

    reads_degrees = False

    uses_edge_types = True
    uses_node_types = True

    Config = RgcnConfig

    def make_conv(self, in_dim: int, out_dim: int) -> nn.Module:
        """Return one convolution."""
        return RelationalConv(in_dim, out_dim, self.facts.num_edge_types, self.config.num_bases)
