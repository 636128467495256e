"""Blocks as DGL's graphs; made once a block."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from models.block import Block
from models.dgl.adapter import give_degrees, make_handle


def block_handle(block: Block) -> Any:
    """Return a block as a DGL block, whose sources' degrees are `end_degrees`.

    Where all nodes are both ends it is a graph, whose degrees are those of its own edges, in and out.
    """

    def make() -> Any:
        handle = make_handle(block.indptr, block.indices.long(), block.num_src)
        if block.degree is None or block.num_src == block.num_dst:
            return handle
        return give_degrees(handle, block.counts, end_degrees(block))

    return block.cached("DGL block", make)


def graph_handle(block: Block) -> Any:
    """Return a block as a DGL graph of the sources, of which only the destinations have in-edges."""
    if block.num_src == block.num_dst:
        return block_handle(block)

    def make() -> Any:
        indptr = torch.cat([block.indptr, block.indptr[-1:].expand(block.num_src - block.num_dst)])
        degrees = end_degrees(block)
        return give_degrees(make_handle(indptr, block.indices.long(), block.num_src), degrees, degrees)

    return block.cached("DGL graph", make)


def end_degrees(block: Block) -> Tensor:
    """Return in-degrees of the sources, those of the destinations counted in the block: float32 (num_src,)."""
    return torch.cat([block.counts, block.degrees[block.num_dst :]])
