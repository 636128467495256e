"""From node vectors to scores: of nodes, of edges, of pairs, of graphs."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from models.block import Batch
from models.facts import GraphFacts
from models.kernels.dense.linear import Linear
from models.kernels.sparse.pairs import pair_product
from models.kernels.sparse.segment import segment_reduce
from models.layers.encoders import CategoryEmbedding
from models.layers.layer import hidden_layers


class NodeHead(nn.Module):
    """A linear map, or none where the last layer makes the scores: x (n, dim) -> (n, out)."""

    def __init__(self, dim: int, out_dim: int, *, linear: bool = True) -> None:
        super().__init__()
        self.linear = Linear(dim, out_dim) if linear else nn.Identity()

    def forward(self, x: Tensor, batch: Batch) -> Tensor:
        """Score the nodes that the batch asks about."""
        if batch.rows is None:
            return self.score(x)
        if 2 * len(batch.rows) > len(x):  # a wide gradient is not written into zeros: scores are narrower
            return self.score(x)[batch.rows]
        return self.score(x[batch.rows])

    def score(self, x: Tensor) -> Tensor:
        """Score each row."""
        return self.linear(x)


class EdgeHead(nn.Module):
    """An MLP on both ends of an edge and what it carries: x_u, x_v (n, dim), f (n, De) -> (n, out).

    `ordered`: the MLP reads [x_u, x_v, f], else [x_u + x_v, |x_u - x_v|, f], which an edge and its reverse share. f are
    numbers as sign(f) log(1 + |f|), of mean 0 and deviation 1 by the means of all batches, which are part of the
    weights (no transform of the data reaches what edges carry), and a vector for each category. Source: the decoders of
    GraphStorm (https://arxiv.org/abs/2406.06022), section 3.
    """

    def __init__(self, dim: int, hidden_dim: int, facts: GraphFacts, num_layers: int, dropout: float) -> None:
        super().__init__()
        self.ordered = facts.ordered_ends
        width = 2 * dim + facts.edge_feature_dim
        # Of a column such as years the deviation is small beside the values, and beside the usual eps.
        count = facts.edge_feature_dim
        self.scale = nn.BatchNorm1d(count, eps=1e-10, momentum=None, affine=False) if count else None
        self.categories = CategoryEmbedding(facts.edge_categories, hidden_dim) if facts.edge_categories else None
        width += hidden_dim if self.categories is not None else 0
        hidden = hidden_layers(width, hidden_dim, num_layers - 1, "relu", dropout)
        self.mlp = nn.Sequential(*hidden, Linear(hidden_dim if hidden else width, facts.out_dim))

    def forward(self, x: Tensor, batch: Batch) -> Tensor:
        """Score the batch's edges."""
        assert batch.pairs is not None
        return self.score(x[batch.pairs[0]], x[batch.pairs[1]], batch.own_feat, batch.own_feat_cat)

    def score(
        self, source: Tensor, target: Tensor, numbers: Tensor | None = None, codes: Tensor | None = None
    ) -> Tensor:
        """Score edges by row i of their ends and of what they carry."""
        parts = [source, target] if self.ordered else [source + target, (source - target).abs()]
        if self.scale is not None:
            assert numbers is not None
            # One edge alone has no deviation to learn from.
            alone = self.training and len(numbers) == 1
            logarithms = numbers.float().abs().log1p() * numbers.sign()
            parts.append(torch.zeros_like(logarithms) if alone else self.scale(logarithms))
        if self.categories is not None:
            assert codes is not None
            parts.append(self.categories(codes))
        return self.mlp(torch.cat([part.to(source.dtype) for part in parts], 1))


class LinkHead(nn.Module):
    """Scores of pairs: x_u, x_v (n, dim) -> (n,).

    `dot`: <x_u, x_v>; `cosine`: that of both at length 1. `mlp`: an MLP on the element-wise product, as OGB's link
    predictor.
    """

    def __init__(self, dim: int, hidden_dim: int, kind: str, num_layers: int, dropout: float) -> None:
        super().__init__()
        self.mlp: nn.Sequential | None = None
        self.is_cosine = kind == "cosine"
        if kind == "mlp":
            hidden = hidden_layers(dim, hidden_dim, num_layers - 1, "relu", dropout)
            self.mlp = nn.Sequential(*hidden, Linear(hidden_dim if hidden else dim, 1))

    def forward(self, x: Tensor, batch: Batch) -> Tensor:
        """Score the batch's pairs."""
        assert batch.pairs is not None
        return self._score(pair_product(self._scaled(x), batch.pairs))

    def score(self, source: Tensor, target: Tensor) -> Tensor:
        """Score row i of `source` with row i of `target`."""
        return self._score(self._scaled(source) * self._scaled(target))

    def score_all(self, source: Tensor, targets: Tensor) -> Tensor:
        """Score each row of `source` with each of `targets`, by products alone: (n, dim), (m, dim) -> (n, m)."""
        return self._scaled(source) @ self._scaled(targets).T

    def _scaled(self, x: Tensor) -> Tensor:
        return nn.functional.normalize(x, dim=1) if self.is_cosine else x

    def _score(self, product: Tensor) -> Tensor:
        return product.sum(1) if self.mlp is None else self.mlp(product).squeeze(1)


class GraphHead(nn.Module):
    """Pool each graph's nodes, then a linear map: x (num_nodes, dim) -> (num_graphs, out)."""

    def __init__(self, dim: int, out_dim: int, pooling: str) -> None:
        super().__init__()
        self.pooling = pooling
        self.linear = Linear(dim, out_dim)

    def forward(self, x: Tensor, batch: Batch) -> Tensor:
        """Score the batch's graphs."""
        assert batch.graph_offsets is not None
        return self.linear(segment_reduce(x, batch.graph_offsets, self.pooling))
