"""Columns that layers carry along behind the nodes' vectors: positions, the node's type, its first vector."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from models.block import Block, Inputs
from models.facts import GraphFacts
from models.layers.encoders import NodeEncoder
from models.layers.layer import Layer, own_rows


class CarryingLayer(Layer):
    """A layer whose convolution reads further columns, which norm, activation and dropout leave alone."""

    columns = 0
    """How many, behind the node's vector; `out_dim` counts them."""

    def forward(self, block: Block, x: Tensor) -> Tensor:
        """Run the layer: x (num_src, in + columns) -> (num_dst, out + columns)."""
        vector, carried = x[:, : -self.columns], x[:, -self.columns :]
        y, kept = self.conv(block, vector, carried)
        y = self.activation(self.norm(self.feed_forward(y)))
        if self.shortcut is not None:
            y = y + self.shortcut(own_rows(block, vector))
        return torch.cat([y, kept], 1)


class CarryingEncoder(NodeEncoder):
    """The encoder, and behind its result the columns that the layers carry along."""

    def __init__(self, word: str, columns: int, facts: GraphFacts, *args: Any, **kwargs: Any) -> None:
        """`word`: coordinates, node_types or first_vectors; as `Convolution.reads` has it."""
        if word == "coordinates":
            facts = replace(facts, feature_dim=facts.feature_dim - columns)
        super().__init__(facts, *args, **kwargs)
        self.word, self.columns, self.is_plain = word, columns, False
        self.out_dim += columns

    def forward(self, inputs: Inputs) -> Tensor:
        """Return (n, out_dim)."""
        if self.word == "coordinates":
            assert inputs.feat is not None, "the loader gave no features"
            feat, carried = inputs.feat[:, : -self.columns], inputs.feat[:, -self.columns :]
            return torch.cat([super().forward(replace(inputs, feat=feat)), carried.float()], 1)
        x = super().forward(inputs)
        if self.word == "first_vectors":
            return torch.cat([x, x], 1)
        node_type = inputs.node_type
        carried = x.new_zeros(len(x), 1) if node_type is None else node_type.unsqueeze(1)
        return torch.cat([x, carried.float()], 1)


class WithoutLast(nn.Module):
    """All columns but the last ones: (n, dim) -> (n, dim - columns)."""

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.columns = columns

    def forward(self, x: Tensor) -> Tensor:
        """Leave them out."""
        return x[:, : -self.columns] if self.columns else x
