"""Weights of edges between 0 and 1 that have gradients, in any model of layers over blocks.

The kernels store no messages, so a weight has no place in them. Instead each edge gets a source of its own, a copy of
its source's row times the weight: what an edge carries is then plain torch, and the model computes as it always does.
Its own edge features that are numbers are weighed alike. It takes E x D numbers a layer, which neighbourhoods have room
for. A mean's number of neighbours and degrees stay what they are, as in GNNExplainer.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from models.base import GraphModel
from models.block import Block
from tasks.explain.scored import ScoredNeighborhood


class SoftScore:
    """The score of a neighbourhood as a function of weights of its edges and of numeric features."""

    def __init__(self, scored: ScoredNeighborhood, *, by_direction: bool = False) -> None:
        """`by_direction`: an edge and its reverse have a weight each, 2 u and 2 u + 1 of unit u."""
        self.scored = scored
        self.blocks = [block.to(scored.device) for block in scored.plain_blocks()]
        hood, numbers = scored.hood, scored.hood.unit_of
        if by_direction:
            ends = zip(hood.layers, numbers, strict=True)
            numbers = [2 * unit + (layer.indices != hood.units.source[unit]) for layer, unit in ends]
        self.unit_of = [torch.from_numpy(unit).to(scored.device) for unit in numbers]
        self.num_units = len(hood.units) * (1 + by_direction)
        self.feat = None if scored.inputs.feat is None else scored.inputs.feat.to(scored.device)

    def outputs(self, weight: Tensor, feat: Tensor | None) -> Tensor:
        """Return the model's outputs, (1, C) or (1,), by weights (U,) and features (n, D); with gradients."""
        inputs = replace(self.scored.inputs, feat=feat)
        with _weighed(self.scored.model, [weight[unit] for unit in self.unit_of]):
            return self.scored.represented(self.blocks, inputs)

    def gradients(self, weight: Tensor, feat: Tensor | None, *, odds: bool) -> tuple[float, Tensor, Tensor | None]:
        """Return the score (of classes the logarithm of its odds, if asked for), and its gradients by both."""
        leaves = [weight.detach().requires_grad_(), *([] if feat is None else [feat.detach().requires_grad_()])]
        outputs = self.outputs(leaves[0], None if feat is None else leaves[1])
        value = (self.scored.asked.margin if odds else self.scored.asked.value)(outputs).sum()
        of_edges, *of_features = torch.autograd.grad(value, leaves, allow_unused=True)
        zero = torch.zeros_like(leaves[0])
        return float(value.detach()), zero if of_edges is None else of_edges, of_features[0] if of_features else None


@contextmanager
def _weighed(model: GraphModel, weights: list[Tensor]) -> Iterator[None]:
    """Have each layer's convolution read sources that are an edge's own. In evaluation mode."""
    was_training = model.training
    model.eval()
    with ExitStack() as stack:
        for layer, weight in zip(model.layers, weights, strict=True):
            conv = getattr(layer, "conv", layer)
            assert isinstance(conv, nn.Module)
            stack.callback(conv.register_forward_pre_hook(_expand(weight)).remove)
        try:
            yield
        finally:
            model.train(was_training)


def _expand(weight: Tensor) -> Any:
    def hook(_: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        block, x, *carried = args
        edges = torch.arange(block.num_edges, device=x.device)
        own = torch.arange(block.num_dst, device=x.device)
        rows = torch.cat([own, block.indices.long()])
        factor = torch.cat([torch.ones(len(own), device=x.device), weight]).unsqueeze(1).to(x.dtype)
        apart = Block(
            block.indptr,
            (len(own) + edges).to(block.indices.dtype),
            len(rows),
            degree=block.degrees[rows],
            weight=block.weight,
            edge_feat=None if block.edge_feat is None else block.edge_feat * weight.unsqueeze(1),
            edge_feat_cat=block.edge_feat_cat,
            edge_type=block.edge_type,
            edge_type_counts=block.edge_type_counts,
        )
        return (apart, x.index_select(0, rows) * factor, *(one.index_select(0, rows) for one in carried))

    return hook
