"""What edges carry, as terms of messages that are linear in it: it is summed as it is, and mapped once a destination.

    sum_e c_e (W x_u + U f_e) = W sum_e c_e x_u + U sum_e c_e f_e

This is what a layer computes that reads the two side by side (concatenated), as GraphStorm's layers do. Nothing as wide
as a layer exists for each edge.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from models.block import Block
from models.facts import GraphFacts
from models.kernels.backends import widen
from models.kernels.dense.linear import Linear, linear
from models.kernels.sparse.adjacency import Adjacency
from models.kernels.sparse.spmm import weighted_sum
from models.layers.encoders import CategoryEmbedding

Scales = tuple[Tensor | None, Tensor | None]
"""Of a sum over in-edges: weights of edges (E,) and factors of destinations (num_dst,), constants; None: ones."""


class _EdgeMaps(nn.Module):
    """A linear map of numeric features and a vector for each category."""

    def __init__(self, facts: GraphFacts, dim: int) -> None:
        super().__init__()
        self.numbers = Linear(facts.edge_feature_dim, dim, bias=False) if facts.edge_feature_dim else None
        self.categories = CategoryEmbedding(facts.edge_categories, dim) if facts.edge_categories else None
        self.num_columns = len(facts.edge_categories)

    def codes(self, block: Block) -> Tensor:
        """Return rows of the categories' table, int32 (E, C)."""
        assert self.categories is not None
        assert block.edge_feat_cat is not None
        return (block.edge_feat_cat + self.categories.offsets).to(torch.int32)


class SummedEdges(_EdgeMaps):
    """sum_{e into v} c_e U f_e, whatever c_e are: (num_dst, dim)."""

    def forward(self, block: Block, kind: str, scales: Callable[[], Scales]) -> Tensor:
        """Sum and map; what a block's edges come to is kept with it, under the name `kind` of the scales."""
        weight, target_scale = block.cached(f"{kind}: scales of edges", scales)
        terms = []
        if self.numbers is not None:
            summed = block.cached(
                f"{kind}: sums of edges' numbers",
                lambda: weighted_sum(_each_edge(block.adjacency), _numbers(block), weight, None, target_scale),
            )
            terms.append(self.numbers(summed))
        if self.categories is not None:
            count = len(self.categories.table)
            adj = block.cached("categories of edges", lambda: _by_code(block.adjacency, self.codes(block), count))
            weights = None if weight is None else weight.repeat_interleave(self.num_columns)
            terms.append(weighted_sum(adj, self.categories.table, weights, None, target_scale))
        return terms[0] if len(terms) == 1 else terms[0] + terms[1]


class AttendedEdges(_EdgeMaps):
    """U f_e of edges that are attended to: a term of each head's score, <a^h, U^h f_e>, and of its message, U^h f_e.

    An edge from a node to itself that is there for attention alone carries zeros.
    """

    def __init__(self, facts: GraphFacts, heads: int, dim: int) -> None:
        super().__init__(facts, heads * dim)
        self.heads, self.dim = heads, dim
        self.vector = nn.Parameter(torch.empty(heads, dim))
        nn.init.xavier_uniform_(self.vector)

    def scores(self, block: Block, adj: Adjacency) -> Tensor:
        """Return the terms of the scores, float32 (E, H), of the edges in `adj`: the block's, or these and loops."""
        terms = []
        if self.numbers is not None:
            folded = (self.numbers.weight.view(self.heads, self.dim, -1) * self.vector.unsqueeze(2)).sum(1)
            terms.append(widen(linear(self._numbers(block, adj), folded)))
        if self.categories is not None:
            folded = (self._table().view(-1, self.heads, self.dim) * self.vector).sum(2)
            terms.append(F.embedding_bag(self._codes(block, adj), folded, mode="sum"))
        return terms[0] if len(terms) == 1 else terms[0] + terms[1]

    def messages(self, block: Block, adj: Adjacency, attention: Tensor) -> Tensor:
        """Return the sums of messages' terms, (num_dst, H, dim), by the edges' attention, float32 (E, H)."""
        terms = []
        if self.numbers is not None:
            numbers = self._numbers(block, adj)[:, None].expand(-1, self.heads, -1).contiguous()
            summed = weighted_sum(_each_edge(adj), numbers, attention)
            maps = self.numbers.weight.view(self.heads, self.dim, -1)
            terms.append(linear(summed.flatten(1), torch.block_diag(*maps)))  # type: ignore[no-untyped-call]
        if self.categories is not None:
            codes, table = self._codes(block, adj), self._table()
            name = f"categories of {adj.num_edges} attended edges"
            by_code = block.cached(name, lambda: _by_code(adj, codes, len(table)))
            weights = attention.repeat_interleave(self.num_columns, 0)
            terms.append(weighted_sum(by_code, table.view(-1, self.heads, self.dim), weights).flatten(1))
        both = terms[0] if len(terms) == 1 else terms[0] + terms[1]
        return both.view(-1, self.heads, self.dim)

    def _numbers(self, block: Block, adj: Adjacency) -> Tensor:
        return block.cached(
            f"numbers of {adj.num_edges} attended edges", lambda: _with_loops(_numbers(block), adj, 0.0)
        )

    def _codes(self, block: Block, adj: Adjacency) -> Tensor:
        """Return rows of `_table`, int32 (E, C)."""
        assert self.categories is not None
        count = len(self.categories.table)
        name = f"codes of {adj.num_edges} attended edges"
        return block.cached(name, lambda: _with_loops(self.codes(block), adj, count))

    def _table(self) -> Tensor:
        """Return the vectors of categories, and zeros behind them."""
        assert self.categories is not None
        return F.pad(self.categories.table, (0, 0, 0, 1))


def _numbers(block: Block) -> Tensor:
    assert block.edge_feat is not None, "the loader gave no features of edges"
    return block.edge_feat


def _each_edge(adj: Adjacency) -> Adjacency:
    """Return the edges as if each had a source of its own."""
    return Adjacency(
        adj.indptr, torch.arange(adj.num_edges, dtype=torch.int32, device=adj.indptr.device), adj.num_edges
    )


def _by_code(adj: Adjacency, codes: Tensor, count: int) -> Adjacency:
    """Return edges from rows of a table, codes int32 (E, C) below `count`, to the destinations."""
    return Adjacency(adj.indptr * codes.shape[1], codes.reshape(-1), count)


def _with_loops(rows: Tensor, adj: Adjacency, filling: float) -> Tensor:
    """Return what edges carry, (E, D), with a row of `filling` for each destination's last edge, where `adj` has one.

    There it is a loop that the block does not have.
    """
    if len(rows) == adj.num_edges:
        return rows
    filled = rows.new_full((adj.num_edges, rows.shape[1]), filling)
    filled[among_loops(adj.indptr, len(rows))] = rows
    return filled


def among_loops(indptr: Tensor, count: int) -> Tensor:
    """Return where `count` edges stand, int64, in a graph `indptr` in which each destination's last edge is a loop."""
    nodes = torch.arange(len(indptr) - 1, device=indptr.device)
    before = torch.repeat_interleave(nodes, indptr.diff() - 1, output_size=count)
    return torch.arange(count, device=indptr.device) + before
