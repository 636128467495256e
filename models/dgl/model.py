"""DGL's convolutions as models: `model: {name: dgl, conv: GATv2Conv, options: {num_heads: 8}}`.

What a convolution needs of a node beside its vector (positions, the node's type, the first vector) travels through the
layers as further columns behind it, so that sampled blocks and layer-wise inference need nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from configs.errors import RecipeError
from configs.registry import MODELS
from models.base import GraphModel
from models.block import Batch, Block, Inputs
from models.dgl.configs import DglConfig
from models.dgl.conv import DglConv, Sizes, graph_handle
from models.dgl.convolutions import complete_options, find_convolution
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


_EDGE_DIM, _COORDINATES = 16, 3
_CARRIED = ("coordinates", "node_types", "first_vectors")


@MODELS.register("dgl")
class Dgl(GraphModel):
    """Any homogeneous convolution of dgl.nn.pytorch, by name, with its own options; computed by DGL in float32."""

    Config = DglConfig

    def __init__(self, config: Any, facts: GraphFacts) -> None:
        """Raises RecipeError where the convolution, its options, the graph and the model's options do not fit."""
        spec = find_convolution(config.conv)
        reads = set(spec.reads)
        self.uses_edge_types = self.reads_relations(config)  # type: ignore[misc]
        self.uses_node_types = "node_types" in reads  # type: ignore[misc]
        self.uses_edge_weights = spec.takes_weights  # type: ignore[misc]
        self.project_inputs = spec.same_width  # type: ignore[misc]
        self.options = complete_options(config.conv, config.options)
        self.carries = next((word for word in _CARRIED if word in reads), "")
        self.columns = {"coordinates": config.coordinates or _COORDINATES, "node_types": 1, "": 0}.get(
            self.carries, config.hidden_dim
        )
        """Columns that the layers carry along behind the nodes' vectors."""
        self.num_made = 0
        _refuse(config, facts, self.carries, self.columns)
        super().__init__(config, facts)
        if self.carries == "coordinates":
            last: Any = self.layers[-1]
            last.conv.conv.coord_mlp.requires_grad_(False)  # nobody reads the last positions

    @classmethod
    def reads_edge_features(cls, config: Any) -> bool:
        """Whether the convolution reads edge features."""
        return bool(
            {"edges", "edges_if_any", "edges_like_nodes", "distances"} & set(find_convolution(config.conv).reads)
        )

    @classmethod
    def reads_relations(cls, config: Any) -> bool:
        """Whether the convolution tells relations apart."""
        return "relations" in find_convolution(config.conv).reads

    @property
    def encoder_class(self) -> Callable[..., NodeEncoder]:  # type: ignore[override]
        """An encoder that adds the columns to be carried, where there are some."""
        return partial(CarryingEncoder, self.carries, self.columns) if self.carries else NodeEncoder

    @property
    def layer_class(self) -> type[Layer]:  # type: ignore[override]
        """Layers that carry columns along, where there are some."""
        return CarryingLayer if self.columns else Layer

    def make_layers(self, in_dim: int) -> nn.ModuleList:
        """Return the stack; its layers count the columns that they carry among theirs."""
        layers = super().make_layers(in_dim - self.columns)
        for layer in layers if self.columns else ():
            layer.columns, layer.out_dim = self.columns, layer.out_dim + self.columns
        return layers

    def make_conv(self, in_dim: int, out_dim: int) -> nn.Module:
        """Return one convolution."""
        self.num_made += 1
        last = self.config.head == "none" and self.num_made == self.config.num_layers
        heads = self.options.get("num_heads", 1)
        if not isinstance(heads, int) or heads < 1 or (out_dim % heads and not last):
            raise RecipeError(
                f"model.options.num_heads={heads} does not divide the layer's width {out_dim}; change one of them"
            )
        edge_dim = self.config.edge_dim or _EDGE_DIM
        return DglConv(self.config, Sizes(in_dim, out_dim, heads, last, self.num_made, edge_dim, self.facts))

    def make_finish(self) -> nn.Module:
        """Return what leaves the carried columns out."""
        return WithoutLast(self.columns) if self.columns else super().make_finish()

    @property
    def head_dim(self) -> int:
        """Columns of a node's own vector."""
        return self.vector_dim - self.columns

    @property
    def is_layered(self) -> bool:
        """Whether one block holds all that a layer reads."""
        return not self.config.reason_for_whole(symmetric=self.facts.symmetric)

    def represent(self, batch: Batch) -> Tensor:
        """Return nodes as vectors; convolutions that count a graph's nodes are told the graphs of a batch."""
        if batch.graph_offsets is not None and batch.blocks:
            block, ends = batch.blocks[0], batch.graph_offsets
            handle = graph_handle(block)
            handle.set_batch_num_nodes(ends.diff())
            handle.set_batch_num_edges(block.indptr[ends].diff())
        return super().represent(batch)


def _refuse(config: DglConfig, facts: GraphFacts, carries: str, columns: int) -> None:
    """Raise RecipeError for a graph that lacks what the convolution reads, or options that would spoil it."""
    reads = set(find_convolution(config.conv).reads)
    if {"edges", "edges_like_nodes"} & reads and not facts.has_edge_features:
        raise RecipeError(
            f"model.conv={config.conv} reads edge features and the graph has none; take another convolution, or data "
            "with features of edges"
        )
    if "distances" in reads and not facts.edge_feature_dim:
        raise RecipeError(
            f"model.conv={config.conv} reads the edges' lengths, and the graph has no numeric edge features to take "
            "them from; take another convolution"
        )
    if carries == "coordinates" and facts.feature_dim < columns:
        raise RecipeError(
            f"model.conv={config.conv} reads positions from the last {columns} feature columns, and there are "
            f"{facts.feature_dim}; set model.coordinates, or take another convolution"
        )
    if carries and config.norm_first:
        raise RecipeError(f"model.norm_first cannot be used with model.conv={config.conv}; remove it")
