"""What a model sees of a graph: blocks of edges, inputs of nodes, and a batch that joins them with what is asked."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch import Tensor

from models import dgl_adapter

T = TypeVar("T", bound="_Movable")


class _Movable:
    """A dataclass whose tensors travel to a device together."""

    def _map(self: T, change: Any) -> T:
        moved: dict[str, Any] = {}
        for item in fields(self):  # type: ignore[arg-type]
            value = getattr(self, item.name)
            if isinstance(value, Tensor):
                moved[item.name] = change(value)
            elif isinstance(value, _Movable):
                moved[item.name] = value._map(change)
            elif isinstance(value, list):
                moved[item.name] = [part._map(change) for part in value]
        return replace(self, **moved)  # type: ignore[type-var]

    def to(self: T, device: torch.device) -> T:
        """Return a copy on `device` (asynchronously from pinned memory), or this very object where it is there already.

        The whole graph so keeps its DGL handle, which costs more to build than a step of training.
        """
        if device.type == "cpu" or self._is_on(device):
            return self
        return self._map(lambda tensor: tensor.to(device, non_blocking=True))

    def _is_on(self, device: torch.device) -> bool:
        elsewhere: list[Tensor] = []

        def look(tensor: Tensor) -> Tensor:
            if tensor.device.type != device.type or device.index not in (None, tensor.device.index):
                elsewhere.append(tensor)
            return tensor

        self._map(look)
        return not elsewhere

    def pin_memory(self: T) -> T:
        """Return a copy in page-locked memory, from which a GPU reads without waiting."""
        return self._map(lambda tensor: tensor if tensor.is_cuda else tensor.pin_memory())


@dataclass
class Block(_Movable):
    """Edges from source nodes to destination nodes; the destinations are the first sources.

    A whole graph is the block in which all nodes are both.
    """

    indptr: Tensor
    """int64 (num_dst + 1,): in-edges of destination v are edges indptr[v] to indptr[v + 1]."""
    indices: Tensor
    """int64 (E,): source of each edge, below num_src."""
    num_src: int
    degree: Tensor | None = None
    """float32 (num_src,): in-degrees in the whole graph, where the block holds a sample of the in-edges."""
    edge_feat: Tensor | None = None
    """float32 (E, De)."""
    edge_feat_cat: Tensor | None = None
    """int64 (E, Ce)."""

    @property
    def num_dst(self) -> int:
        """Number of destination nodes."""
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        """Number of edges."""
        return len(self.indices)

    @cached_property
    def dgl(self) -> Any:
        """The same as a DGL block, for `update_all` and everything else that DGL offers."""
        return dgl_adapter.make_handle(self.indptr, self.indices, self.num_src)

    @cached_property
    def counts(self) -> Tensor:
        """Number of in-edges in the block: float32 (num_dst,)."""
        return (self.indptr[1:] - self.indptr[:-1]).to(torch.float32)

    @cached_property
    def degrees(self) -> Tensor:
        """In-degrees of the sources in the whole graph: float32 (num_src,)."""
        if self.degree is not None:
            return self.degree
        assert self.num_src == self.num_dst, "a block that is not the whole graph brings its sources' degrees"
        return self.counts

    @cached_property
    def scale(self) -> Tensor | None:
        """True over sampled degree, (num_dst, 1): makes a sampled sum unbiased; None where nothing was sampled."""
        if self.degree is None:
            return None
        return (self.degree[: self.num_dst] / self.counts.clamp(min=1)).unsqueeze(1)


@dataclass
class Inputs(_Movable):
    """What is known of the first block's source nodes."""

    node_ids: Tensor
    """int64 (n,): ids in the graph; index learnable embeddings."""
    feat: Tensor | None = None
    """float32 (n, D)."""
    feat_cat: Tensor | None = None
    """int64 (n, C)."""


@dataclass
class Batch(_Movable):
    """One step's work."""

    blocks: list[Block]
    """One a layer, from the inputs to the seeds; or a single one, the whole graph, for all layers."""
    inputs: Inputs
    target: Tensor
    """int64 (n,) or float32 (n, T): what the scores should be."""
    num_seeds: int
    rows: Tensor | None = None
    """int64 (n,): nodes of the last layer that are asked about; None: all (node tasks)."""
    pairs: Tensor | None = None
    """int64 (2, n): node pairs in the last layer's numbering, positives first (link tasks)."""
    graph_offsets: Tensor | None = None
    """int64 (n + 1,): nodes of each graph (graph tasks)."""
    num_edges: int = field(default=0)
    """Edges that messages pass along, all layers together."""

    def block(self, layer: int) -> Block:
        """Return the block of a layer."""
        return self.blocks[layer] if len(self.blocks) > 1 else self.blocks[0]


def aggregate(block: Block, x: Tensor, reduce: str) -> Tensor:
    """Reduce sources over in-edges with DGL's fused kernel; no messages are stored.

    y_v = reduce_{u in N(v)} x_u, x (num_src, D) -> (num_dst, D); 0 without neighbours. `reduce` is sum, mean or max. A
    sum over sampled neighbours is scaled by true over sampled degree, so that its expectation is the full sum.
    """
    y = dgl_adapter.copy_reduce(block.dgl, reduce, x)
    if reduce == "max":
        return y.masked_fill((block.counts == 0).unsqueeze(1), 0)  # DGL 2.1 leaves -inf there
    return y * block.scale if reduce == "sum" and block.scale is not None else y
