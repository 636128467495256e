"""Dilated neighbours (Li et al., DeepGCNs, ICCV 2019, https://arxiv.org/abs/1904.03751, section 3.3)."""

from __future__ import annotations

import torch
from torch import Tensor

from configs.errors import RecipeError
from models.block import Block


def dilate(block: Block, step: int, span: int, key: int | None = None) -> Block:
    """Return the block with k of each node's n nearest neighbours, k = ceil(n / span): number 0, step, 2 step, ...

    So layers with steps 1 to `span` see equally many neighbours, ever further away. In-edges are ordered by falling
    weight where there are weights, else as they stand; the result has no weights, which have told what they are for.
    With a key, k of the nearest k * step are drawn at random.

    Args:
        block: all in-edges of its destinations, as kNN graphs have them.
        step: the dilation, at most `span`.
        span: the largest dilation.
        key: what to draw; None: every step-th neighbour (kept with the block).

    Raises:
        RecipeError: the block holds a sample of the in-edges.
    """
    if span == 1:
        return block
    if key is not None:
        return _choose(block, step, span, key)
    return block.cached(f"dilated_{step}_{span}", lambda: _choose(block, step, span, None))


def _choose(block: Block, step: int, span: int, key: int | None) -> Block:
    if block.degree is not None and bool((block.degree[: block.num_dst] != block.counts).any()):
        raise RecipeError(
            "model.dilation takes every d-th of all neighbours, and the batch holds some of them; "
            "set train.loader=full, train.loader.fanout to -1 in every layer, or model.dilation=1 (with "
            "train.strategy=partition_parallel a part's rim is such a sample)"
        )
    counts = block.indptr[1:] - block.indptr[:-1]
    sizes = (counts + span - 1) // span
    targets = torch.repeat_interleave(counts, output_size=block.num_edges)
    rank = _rank(block.indptr, targets, None if block.weight is None else -block.weight)
    if key is None:
        chosen = (rank % step == 0) & (rank // step < sizes[targets])
    else:
        # Drawn on the CPU, so that every device draws alike; those too far away come last.
        drawn = torch.rand(len(targets), generator=torch.Generator().manual_seed(key)).to(rank.device)
        drawn = drawn + 2 * (rank >= sizes[targets] * step)
        chosen = _rank(block.indptr, targets, drawn) < sizes[targets]
    return Block(
        torch.cat([sizes.new_zeros(1), sizes.cumsum(0)]),
        block.indices[chosen],
        block.num_src,
        degree=None if block.degree is None else torch.ceil(block.degree / span),
        edge_feat=_rows(block.edge_feat, chosen),
        edge_feat_cat=_rows(block.edge_feat_cat, chosen),
        edge_type=_rows(block.edge_type, chosen),
    )


def _rank(indptr: Tensor, targets: Tensor, value: Tensor | None) -> Tensor:
    """Return each edge's place among its destination's, by ascending value (None: as they stand): int64 (E,)."""
    places = torch.arange(len(targets), device=targets.device) - indptr[targets]
    if value is None:
        return places
    order = torch.argsort(value, stable=True)
    order = order[torch.argsort(targets[order], stable=True)]
    return torch.empty_like(places).scatter_(0, order, places)


def _rows(values: Tensor | None, chosen: Tensor) -> Tensor | None:
    return None if values is None else values[chosen]
