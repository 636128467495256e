"""Weights of edges between 0 and 1 that have gradients, in any model of layers over blocks.

The kernels store no messages, so a weight has no place in them. Instead each edge gets a source of its own, a copy of
its source's row times the weight: what an edge carries is then plain torch, and the model computes as it always does.
Its own edge features that are numbers are weighed alike. It takes E x D numbers a layer, which neighbourhoods have room
for. A mean's number of neighbours and degrees stay what they are, as in GNNExplainer.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from models.base import GraphModel
from tasks.arrays import Array
from tasks.explain.base import Part
from tasks.explain.scored import ScoredNeighborhood


@dataclass(frozen=True)
class Numbers:
    """Numeric columns of nodes, of a layer's edges, or of the asked edge."""

    values: Tensor
    """float32 (rows, D)."""
    usual: Tensor
    """float32 (D,)."""
    column: Array
    """int64 (D,): number among `ScoredNeighborhood.names`."""
    part: Part
    place: Array
    """int64 (rows,): as in `Effects`."""


class SoftScore:
    """The score of a neighbourhood as a function of weights of its edges and of numeric columns."""

    def __init__(self, scored: ScoredNeighborhood, *, by_direction: bool = False) -> None:
        """`by_direction`: an edge and its reverse have a weight each, 2 u and 2 u + 1 of unit u."""
        self.scored = scored
        self.blocks = [block.to(scored.device) for block in scored.blocks(scored.variants(1))[0]]
        hood, units = scored.hood, scored.hood.unit_of
        tables = {"nodes": (scored.inputs.feat, np.arange(len(hood.nodes)))}
        tables["own"] = scored.own[0] if scored.own else None, np.array([-1])
        tables |= {str(number): (block.edge_feat, units[number]) for number, block in enumerate(self.blocks)}
        self.numbers = {
            name: self._numbers(name, table, place) for name, (table, place) in tables.items() if table is not None
        }
        if by_direction:
            ends = zip(hood.layers, units, strict=True)
            units = [2 * unit + (layer.indices != hood.units.source[unit]) for layer, unit in ends]
        self.unit_of = [torch.from_numpy(unit).to(scored.device) for unit in units]
        self.ones = torch.ones(len(hood.units) * (1 + by_direction), device=scored.device)

    def _numbers(self, name: str, table: Tensor, place: Array) -> Numbers:
        scored, of_nodes = self.scored, name == "nodes"
        columns = scored.columns if of_nodes else scored.edge_columns
        column = columns.column_of[: table.shape[1]] + (0 if of_nodes else len(scored.columns.names))
        values = table.to(scored.device)
        usual = torch.from_numpy(columns.usual[: table.shape[1]]).to(values)
        return Numbers(values, usual, column, "feature" if of_nodes else "edge feature", place)

    def outputs(self, weight: Tensor, tables: dict[str, Tensor] | None = None) -> Tensor:
        """Return the model's outputs, (1, C) or (1,), by weights (U,) and `numbers` as they are, or others; with
        gradients."""
        scored, values = self.scored, {name: one.values for name, one in self.numbers.items()} | (tables or {})
        inputs = replace(scored.inputs, feat=values.get("nodes"))
        own = scored.own and [values.get("own"), scored.own[1]]
        blocks = [
            replace(block, edge_feat=values[str(number)]) if str(number) in values else block
            for number, block in enumerate(self.blocks)
        ]
        with _weighed(scored.model, [weight[unit] for unit in self.unit_of]):
            return scored.represented(blocks, inputs, own)

    def gradients(self, weight: Tensor, tables: dict[str, Tensor], *, odds: bool) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the gradients of the score (of classes of the logarithm of its odds, if asked for) by both."""
        leaves = [one.detach().requires_grad_() for one in (weight, *tables.values())]
        outputs = self.outputs(leaves[0], dict(zip(tables, leaves[1:], strict=True)))
        value = (self.scored.asked.margin if odds else self.scored.asked.value)(outputs).sum()
        slopes = torch.autograd.grad(value, leaves, materialize_grads=True)
        return slopes[0], dict(zip(tables, slopes[1:], strict=True))


@contextmanager
def _weighed(model: GraphModel, weights: list[Tensor]) -> Iterator[None]:
    """Have each layer's convolution read sources that are an edge's own."""
    with ExitStack() as stack:
        for layer, weight in zip(model.layers, weights, strict=True):
            conv = getattr(layer, "conv", layer)
            assert isinstance(conv, nn.Module)
            stack.callback(conv.register_forward_pre_hook(_expand(weight)).remove)
        yield


def _expand(weight: Tensor) -> Any:
    def hook(_: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        block, x, *carried = args
        edges = torch.arange(block.num_edges, device=x.device)
        own = torch.arange(block.num_dst, device=x.device)
        rows = torch.cat([own, block.indices.long()])
        factor = torch.cat([torch.ones(len(own), device=x.device), weight]).unsqueeze(1).to(x.dtype)
        apart = replace(
            block,
            indices=(len(own) + edges).to(block.indices.dtype),
            num_src=len(rows),
            degree=block.degrees[rows],
            edge_feat=None if block.edge_feat is None else block.edge_feat * weight.unsqueeze(1),
        )
        return (apart, x.index_select(0, rows) * factor, *(one.index_select(0, rows) for one in carried))

    return hook
