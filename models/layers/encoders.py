"""From what a node or an edge carries to the vector that the first layer reads."""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor, nn

from models.block import Block, Inputs
from models.facts import GraphFacts
from models.kernels.dense.linear import Linear
from models.kernels.sparse.message import EdgeTerm
from models.layers.layer import Activation, Dropout

# Up to so many combinations of an edge's categories are encoded once for all edges. OGB's bonds have 60.
MAX_COMBINATIONS = 4096


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
            # Data that has a code for what its training did not see has it here: untrained, it says nothing.
            self.table.data[start - 1].zero_()

    def forward(self, codes: Tensor) -> Tensor:
        """Look up and sum."""
        return nn.functional.embedding_bag(codes + self.offsets, self.table, mode="sum")


class NodeEncoder(nn.Module):
    """Numeric features, category embeddings, both added up, or a learnable row for each node where there is nothing.

    Numeric features alone pass through unless `project` asks for a linear map to `dim`, or there are several types of
    nodes, each of which then gets a map of its own. Known labels are appended to numeric features, or added. Beside
    features nodes of some types may have a learnable row too, which is added.
    """

    def __init__(
        self,
        facts: GraphFacts,
        dim: int,
        *,
        project: bool,
        embedding_dim: int | None = None,
        labels: int = 0,
        node_types: int = 1,
        embedded_types: tuple[int, ...] = (),
        dropout: float = 0.0,
        activation: str | None = None,
    ) -> None:
        """Size the parameters.

        Args:
            facts: which features there are.
            dim: columns of the result, where features do not just pass through.
            project: map whatever has another width to `dim`.
            embedding_dim: width of learnable embeddings; None: `dim`.
            labels: columns of known labels to read; 0: none.
            node_types: types of nodes whose numeric features are mapped apart.
            embedded_types: numbers of the types whose nodes have a learnable row beside features.
            dropout: share of the result that is dropped while training.
            activation: what comes after that; None: nothing.
        """
        super().__init__()
        width = facts.feature_dim + labels if facts.feature_dim else 0
        self.embedding: nn.Embedding | None = None
        if not facts.feature_dim and not facts.categories:
            count = 1 if facts.many_graphs else facts.num_nodes  # nodes of unseen graphs can have no own row
            self.embedding = nn.Embedding(count, embedding_dim or dim)
            nn.init.xavier_uniform_(self.embedding.weight)
            width = embedding_dim or dim
        typed = bool(facts.feature_dim) and node_types > 1
        mapped = typed or facts.categories or (project and (facts.feature_dim or width != dim))
        self.linear: nn.Linear | TypedLinear | None = None
        if width and mapped:
            self.linear = TypedLinear(width, dim, node_types) if typed else Linear(width, dim)
        self.categories = CategoryEmbedding(facts.categories, dim) if facts.categories else None
        self.out_dim = dim if mapped else width
        if self.embedding is None and embedded_types:
            self.embedding = nn.Embedding(facts.num_nodes, self.out_dim)  # a row for all: ids of types may be mixed
            nn.init.uniform_(self.embedding.weight, -1, 1)  # as large as a linear map of standardised features
        is_embedded = torch.zeros(node_types).index_fill(0, torch.tensor(embedded_types, dtype=torch.int64), 1)
        self.is_embedded: Tensor | None
        self.register_buffer("is_embedded", is_embedded[:, None] if embedded_types else None, persistent=False)
        self.num_labels = labels
        self.labels = Linear(labels, self.out_dim, bias=False) if labels and not facts.feature_dim else None
        self.dropout = Dropout(dropout)
        self.activation = Activation(activation) if activation else nn.Identity()
        self.is_plain = bool(facts.feature_dim) and not (mapped or labels or dropout or activation)
        """Whether the result is the numeric features as they are."""

    def forward(self, inputs: Inputs) -> Tensor:
        """Return (n, out_dim)."""
        labels = known_labels(inputs, self.num_labels) if self.num_labels else None
        x = inputs.feat
        if self.embedding is not None and self.is_embedded is None:
            shared = self.embedding.num_embeddings == 1
            x = self.embedding(torch.zeros_like(inputs.node_ids) if shared else inputs.node_ids)
        elif x is not None and labels is not None:
            x = torch.cat([x, labels.to(x.dtype)], 1)
        if isinstance(self.linear, TypedLinear):
            assert inputs.node_type is not None, "the loader gave no types of nodes"
            x = self.linear(x, inputs.node_type, inputs.node_type_counts)
        elif self.linear is not None:
            x = self.linear(x)
        if self.categories is not None:
            embedded = self.categories(inputs.feat_cat)
            x = embedded if x is None else x + embedded
        assert x is not None, "the loader gave no features"
        if self.embedding is not None and self.is_embedded is not None:
            assert inputs.node_type is not None, "the loader gave no types of nodes"
            x = x + self.embedding(inputs.node_ids) * self.is_embedded[inputs.node_type]
        if self.labels is not None:
            x = x + self.labels(labels)
        return self.activation(self.dropout(x))


def known_labels(inputs: Inputs, columns: int) -> Tensor:
    """Return labels as float32 (n, columns): classes one-hot, 0/1 labels as -1/1; zeros where they are hidden."""
    label = inputs.label
    assert label is not None, "the loader gave no labels to a model with label_reuse"
    if label.is_floating_point():
        return torch.nan_to_num(2 * label.view(len(label), columns) - 1)
    is_labelled = (label >= 0).unsqueeze(1)
    encoded = torch.zeros(len(label), columns, device=label.device)
    return encoded.scatter_(1, label.clamp(min=0).unsqueeze(1), is_labelled.to(encoded.dtype))


class EdgeEncoder(nn.Module):
    """Edge features as vectors: category embeddings plus a linear map of the numeric ones.

    Where edges carry a few categories only, the result is a table of all their combinations and each edge's row in it,
    so that nothing of size E x dim exists; else the E rows themselves.
    """

    def __init__(self, facts: GraphFacts, dim: int) -> None:
        super().__init__()
        self.linear = Linear(facts.edge_feature_dim, dim) if facts.edge_feature_dim else None
        self.categories = CategoryEmbedding(facts.edge_categories, dim) if facts.edge_categories else None
        self.combinations: Tensor | None
        self.strides: Tensor
        few = self.linear is None and math.prod(facts.edge_categories) <= MAX_COMBINATIONS
        every = torch.tensor(list(itertools.product(*map(range, facts.edge_categories)))) if few else None
        self.register_buffer("combinations", every, persistent=False)
        strides = [math.prod(facts.edge_categories[j + 1 :]) for j in range(len(facts.edge_categories))]
        self.register_buffer("strides", torch.tensor(strides, dtype=torch.int64), persistent=False)

    def forward(self, block: Block, dtype: torch.dtype) -> EdgeTerm:
        """Return the edges' vectors in `dtype`: a table (K, dim) and codes int32 (E,), or (E, dim)."""
        if self.combinations is not None:
            assert self.categories is not None
            codes = block.cached("codes of edges", lambda: self._codes(block))  # the same in each layer
            return self.categories(self.combinations).to(dtype), codes
        parts = []
        if self.linear is not None:
            parts.append(self.linear(block.edge_feat))
        if self.categories is not None:
            parts.append(self.categories(block.edge_feat_cat))
        return (parts[0] if len(parts) == 1 else parts[0] + parts[1]).to(dtype)

    def _codes(self, block: Block) -> Tensor:
        """Return each edge's row among the combinations: int32 (E,)."""
        assert block.edge_feat_cat is not None
        return (block.edge_feat_cat * self.strides).sum(1).to(torch.int32)


def type_sizes(types: Tensor, num_types: int, counts: tuple[int, ...] | None) -> list[int]:
    """Return how many of `types`, int64 (n,), are 0, 1, ..., num_types - 1; `counts`: what is known of that."""
    if counts is None:
        sizes: list[int] = torch.bincount(types, minlength=num_types).tolist()
        return sizes
    return [*counts, *[0] * (num_types - len(counts))]


class TypedLinear(nn.Module):
    """y_v = W_t x_v + b_t, t the type of v. Where a type has no features, x_v = 0, and b_t is its vector."""

    def __init__(self, in_dim: int, out_dim: int, num_types: int) -> None:
        super().__init__()
        self.maps = nn.ModuleList(Linear(in_dim, out_dim) for _ in range(num_types))

    def forward(self, x: Tensor, node_type: Tensor, counts: tuple[int, ...] | None = None) -> Tensor:
        """Map rows x (n, in_dim) of types int64 (n,), each below num_types, to (n, out_dim).

        `counts`: how many are of types 0, 1, ...; without it a GPU is asked, and waited for.
        """
        order = torch.argsort(node_type, stable=True)
        parts = torch.split(x[order], type_sizes(node_type, len(self.maps), counts))
        y = torch.cat([linear(part) for linear, part in zip(self.maps, parts, strict=True)])
        return torch.empty_like(y).index_copy(0, order, y)
