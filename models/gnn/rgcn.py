"""Relational GCN (Schlichtkrull et al., ESWC 2018, https://arxiv.org/abs/1703.06103, equations 2 and 3)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from configs.errors import RecipeError
from configs.registry import MODELS
from models.base import GraphModel
from models.block import Block
from models.configs import RgcnConfig
from models.facts import GraphFacts
from models.kernels.dense.linear import Linear
from models.kernels.sparse.adjacency import Adjacency
from models.kernels.sparse.spmm import weighted_sum
from models.layers.encoders import NodeEncoder
from models.layers.layer import own_rows
from models.layers.node_types import type_sizes


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


def relation_shares(block: Block, num_relations: int) -> Tensor:
    """Return 1 / c_vr for each edge, c_vr the in-edges of its destination of its relation: float32 (E,)."""
    assert block.edge_type is not None, "the loader gave no relations"
    pair = block.adjacency.targets() * num_relations + block.edge_type
    ascending = torch.sort(pair).values
    counts = torch.searchsorted(ascending, pair, right=True) - torch.searchsorted(ascending, pair)
    return counts.to(torch.float32).reciprocal()


class RelationalConv(nn.Module):
    """y_v = W_0 x_v + sum_r W_r mean_{u in N_r(v)} x_u + b, W_r free or sum_b a_rb V_b.

    One sparse product a relation, or one a basis over edges weighted by a_rb / c_vr; no messages are stored. c_vr are
    the block's own counts, so sampled neighbours are averaged as they are.
    """

    def __init__(self, in_dim: int, out_dim: int, num_relations: int, num_bases: int | None) -> None:
        super().__init__()
        self.num_relations = num_relations
        self.own = Linear(in_dim, out_dim)
        self.maps = nn.Parameter(torch.empty(num_bases or num_relations, in_dim, out_dim))
        for matrix in self.maps:
            nn.init.xavier_uniform_(matrix)
        self.coefficients = nn.Parameter(torch.empty(num_relations, num_bases)) if num_bases else None
        if self.coefficients is not None:
            nn.init.xavier_uniform_(self.coefficients)
        self.map_first = out_dim < in_dim

    def forward(self, block: Block, x: Tensor) -> Tensor:
        """Convolve: x (num_src, in_dim) -> (num_dst, out_dim)."""
        y: Tensor = self.own(own_rows(block, x))
        if self.coefficients is None:
            relations = block.cached("by_relation", lambda: by_relation(block, self.num_relations))
            for adj, matrix in zip(relations, self.maps, strict=True):
                y = y + self._reduce(adj, x, matrix, None)
            return y
        shares = block.cached("relation_shares", lambda: relation_shares(block, self.num_relations))
        shares = shares.to(self.coefficients.dtype)
        for coefficient, matrix in zip(self.coefficients.unbind(1), self.maps, strict=True):
            y = y + self._reduce(block.adjacency, x, matrix, coefficient[block.edge_type] * shares)
        return y

    def _reduce(self, adj: Adjacency, x: Tensor, matrix: Tensor, weight: Tensor | None) -> Tensor:
        """Return the mapped mean, or weighted sum, over `adj`; aggregates whichever side is narrower."""
        scale = adj.degree_scale() if weight is None else None
        if self.map_first:
            return weighted_sum(adj, x @ matrix, weight, target_scale=scale)
        return weighted_sum(adj, x, weight, target_scale=scale) @ matrix


@MODELS.register("rgcn")
class Rgcn(GraphModel):
    """R-GCN: a map for each relation, and for each node type's features; for graphs with several types of them."""

    reads_degrees = False

    uses_edge_types = True
    uses_node_types = True

    Config = RgcnConfig

    def __init__(self, config: Any, facts: GraphFacts) -> None:
        """Raises RecipeError for more bases than relations, or for embeddings that are there already."""
        if config.num_bases is not None and config.num_bases >= facts.num_edge_types:
            raise RecipeError(
                f"model.num_bases={config.num_bases} is no less than the graph's {facts.num_edge_types} relation(s); "
                "remove it"
            )
        has_features = bool(facts.feature_dim or facts.categories)
        if config.embed_nodes and (not has_features or facts.many_graphs):
            raise RecipeError(
                "model.embed_nodes is for node and link tasks on graphs with node features: without any, embeddings "
                "are there already; remove it"
            )
        super().__init__(config, facts)

    def make_encoder(self) -> NodeEncoder:
        """Return the encoder, with a vector for each node where it is asked for."""
        encoder = super().make_encoder()
        if self.config.embed_nodes:
            encoder.add_embedding(self.facts.num_nodes)
        return encoder

    def make_conv(self, in_dim: int, out_dim: int) -> nn.Module:
        """Return one convolution."""
        return RelationalConv(in_dim, out_dim, self.facts.num_edge_types, self.config.num_bases)
