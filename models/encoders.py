"""From what a node or an edge carries to the vector that the first layer reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from models.base import GraphFacts
    from models.block import Block, Inputs


class CategoryEmbedding(nn.Module):
    """Sum of one embedding a column (OGB's atom and bond encoders): codes (n, C) -> (n, dim)."""

    def __init__(self, cardinalities: tuple[int, ...], dim: int) -> None:
        super().__init__()
        # One table for all columns: column j's codes start at offsets[j], so that a single gather-and-sum serves.
        self.table = nn.Parameter(torch.empty(sum(cardinalities), dim))
        self.offsets: Tensor
        self.register_buffer("offsets", torch.tensor((0, *cardinalities[:-1])).cumsum(0), persistent=False)
        start = 0
        for count in cardinalities:
            nn.init.xavier_uniform_(self.table.data[start : start + count])
            start += count

    def forward(self, codes: Tensor) -> Tensor:
        """Look up and sum."""
        return nn.functional.embedding_bag(codes + self.offsets, self.table, mode="sum")


class NodeEncoder(nn.Module):
    """Numeric features, category embeddings, both added up, or a learnable row for each node where there is nothing.

    Numeric features alone pass through unless `project` asks for a linear map to `dim`.
    """

    def __init__(self, facts: GraphFacts, dim: int, *, project: bool) -> None:
        super().__init__()
        self.linear = nn.Linear(facts.feature_dim, dim) if facts.feature_dim and (project or facts.categories) else None
        self.categories = CategoryEmbedding(facts.categories, dim) if facts.categories else None
        self.embedding: nn.Embedding | None = None
        if not facts.feature_dim and not facts.categories:
            count = 1 if facts.task == "graph" else facts.num_nodes  # nodes of unseen graphs can have no own row
            self.embedding = nn.Embedding(count, dim)
            nn.init.xavier_uniform_(self.embedding.weight)
        passes = bool(facts.feature_dim) and self.linear is None
        self.out_dim = facts.feature_dim if passes else dim
        """Columns of the result."""

    def forward(self, inputs: Inputs) -> Tensor:
        """Return (n, out_dim)."""
        if self.embedding is not None:
            shared = self.embedding.num_embeddings == 1
            return self.embedding(torch.zeros_like(inputs.node_ids) if shared else inputs.node_ids)
        x = inputs.feat
        if self.linear is not None:
            x = self.linear(x)
        if self.categories is not None:
            embedded = self.categories(inputs.feat_cat)
            x = embedded if x is None else x + embedded
        assert x is not None, "the loader gave no features"
        return x


class EdgeEncoder(nn.Module):
    """Edge features as vectors: category embeddings plus a linear map of the numeric ones, (E, dim)."""

    def __init__(self, facts: GraphFacts, dim: int) -> None:
        super().__init__()
        self.linear = nn.Linear(facts.edge_feature_dim, dim) if facts.edge_feature_dim else None
        self.categories = CategoryEmbedding(facts.edge_categories, dim) if facts.edge_categories else None

    def forward(self, block: Block) -> Tensor:
        """Return (E, dim)."""
        parts = []
        if self.linear is not None:
            parts.append(self.linear(block.edge_feat))
        if self.categories is not None:
            parts.append(self.categories(block.edge_feat_cat))
        return parts[0] if len(parts) == 1 else parts[0] + parts[1]
