"""GATNE-T: vectors of nodes in a graph with several relations (Cen and others, KDD 2019, arXiv:1905.01669).

The vector of node i in relation r (section 4.2; alpha is 1 and rows have length 1, as in the authors' program):

    v_ir = b_i + M_r^T U_i a_ir         b_i: the node's base, (d,)
    U_i  = (u_i1, ..., u_iR)            u_iq: mean of the rows that i's neighbours in relation q lend it, (s,)
    a_ir = softmax(w_r^T tanh(W_r U_i)) over the relations, (R,)

A node without neighbours in a relation reads the row that it would lend there itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from configs.registry import MODELS
from models.layers.output_heads import LinkHead
from models.vectors.base import VectorModel
from models.vectors.configs import GatneConfig


class RelationMixing(nn.Module):
    """What all nodes share: M_r, W_r and w_r of every relation."""

    def __init__(self, num_relations: int, dim: int, edge_dim: int, attention_dim: int, seed: int = 0) -> None:
        """Draw them: normal, with a standard deviation of 1 / sqrt(dim)."""
        super().__init__()
        generator = torch.Generator().manual_seed(seed)

        def drawn(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.randn(*shape, generator=generator) / dim**0.5)

        self.transform = drawn(num_relations, edge_dim, dim)
        """M: (R, s, d)."""
        self.attention = drawn(num_relations, edge_dim, attention_dim)
        """W: (R, s, a)."""
        self.query = drawn(num_relations, attention_dim)
        """w: (R, a)."""

    def forward(self, base: Tensor, lent: Tensor, bounds: Sequence[int]) -> Tensor:
        """Return vectors of length 1, (n, d), of bases (n, d) and each row's U, `lent` (n, R, s).

        Rows bounds[r] to bounds[r + 1] are asked about in relation r.
        """
        parts = []
        for r in range(len(bounds) - 1):
            of_relation = slice(bounds[r], bounds[r + 1])
            rows = lent[of_relation]
            share = torch.softmax(torch.tanh(rows @ self.attention[r]) @ self.query[r], 1)  # (n, R)
            mixed = torch.bmm(share[:, None], rows).squeeze(1)  # (n, s)
            parts.append(base[of_relation] + mixed @ self.transform[r])
        return nn.functional.normalize(torch.cat(parts), dim=1)


class RelationHead(LinkHead):
    """Cosine of both ends' vectors in the relation that a pair is asked about: x (n, R * dim)."""

    def __init__(self, dim: int, num_relations: int) -> None:
        super().__init__(dim, dim, "cosine", 1, 0.0)
        self.dim, self.num_relations = dim, num_relations

    def score(self, source: Tensor, target: Tensor, relation: Tensor | None = None) -> Tensor:
        """Score row i of `source` with row i of `target` in relation i, int64 (n,): float32 (n,)."""
        assert relation is not None, "such a model scores a pair by its relation"
        return super().score(self._of(source, relation), self._of(target, relation))

    def _of(self, x: Tensor, relation: Tensor) -> Tensor:
        rows = x.view(len(x), self.num_relations, self.dim)
        return rows[torch.arange(len(x), device=x.device), relation]


@MODELS.register("gatne")
class Gatne(VectorModel):
    """GATNE-T: what remains of its training, the vectors of all relations side by side, float32 (N, R * dim)."""

    Config = GatneConfig
    scores_relations = True

    @property
    def vector_dim(self) -> int:
        """Columns of a node's row."""
        return int(self.config.dim) * max(1, self.facts.num_relations)

    def make_head(self) -> RelationHead:
        """Return the head of link tasks."""
        return RelationHead(self.config.dim, max(1, self.facts.num_relations))
