"""What a model sees of a graph: blocks of edges, inputs of nodes, and a batch that joins them with what is asked."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch import Tensor

from models.kernels.sparse.adjacency import Adjacency
from models.kernels.sparse.spmm import weighted_sum
from models.kernels.sparse.spmm_max import max_rows

T = TypeVar("T", bound="Movable")
V = TypeVar("V")


class Movable:
    """A dataclass whose tensors travel to a device together."""

    _cache: dict[str, Any]
    """What `cached` keeps, of those that have it; a copy on another device starts anew."""

    def _map(self: T, change: Any) -> T:
        moved: dict[str, Any] = {}
        for item in fields(self):  # type: ignore[arg-type]
            value = getattr(self, item.name)
            if isinstance(value, Tensor):
                moved[item.name] = change(value)
            elif isinstance(value, Movable):
                moved[item.name] = value._map(change)
            elif isinstance(value, list):
                parts = [part._map(change) for part in value]
                moved[item.name] = value if all(map(operator.is_, parts, value)) else parts
        if all(value is getattr(self, name) for name, value in moved.items()):
            return self  # what is the same in every step keeps its transpose and its DGL handle
        return replace(self, **moved)  # type: ignore[type-var]

    def to(self: T, device: torch.device) -> T:
        """Return a copy on `device` (asynchronously from pinned memory), or this very object if it is there already."""
        if device.type == "cpu":
            return self
        return self._map(Mover(lambda tensor: tensor.to(device, non_blocking=True)))

    def pin_memory(self: T) -> T:
        """Return a copy in page-locked memory, from which a GPU reads without waiting; what lies there stays."""
        return self._map(Mover(lambda tensor: tensor if tensor.is_cuda else tensor.pin_memory()))

    def record_stream(self, stream: torch.cuda.Stream) -> None:
        """Note that `stream` reads the tensors, so that their memory is not given out again before it has."""

        def note(tensor: Tensor) -> Tensor:
            tensor.record_stream(stream)
            return tensor

        self._map(note)

    def cached(self, name: str, make: Callable[[], V]) -> V:
        """Return what `make` returns, called the first time only: for what layers derive from a block's edges."""
        if name not in self._cache:
            self._cache[name] = make()
        kept: V = self._cache[name]
        return kept


class Mover:
    """Moves tensors to other memory; two halves of one matrix as that matrix, so that they stay its halves there."""

    def __init__(self, move: Callable[[Tensor], Tensor]) -> None:
        """`move` returns a copy of a contiguous tensor, or the tensor if it lies there already."""
        self._move, self._moved = move, dict[int, Tensor]()

    def __call__(self, tensor: Tensor) -> Tensor:
        """Return the tensor elsewhere."""
        whole = _matrix_of(tensor)
        if whole is None:
            return self._move(tensor)
        if whole.data_ptr() not in self._moved:
            self._moved[whole.data_ptr()] = self._move(whole)
        moved = self._moved[whole.data_ptr()]
        if moved.data_ptr() == whole.data_ptr():
            return tensor
        return moved.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset() - whole.storage_offset())


def _matrix_of(tensor: Tensor) -> Tensor | None:
    """Return the contiguous matrix, in the tensor's dtype, whose left or right half the tensor is; None: it is none."""
    whole = tensor._base
    if whole is None or tensor.dim() != 2 or tensor.is_contiguous() or whole.itemsize != tensor.itemsize:
        return None
    if not whole.is_contiguous() or whole.shape != (len(tensor), 2 * tensor.shape[1]):
        return None
    return whole.view(tensor.dtype)


@dataclass
class Block(Movable):
    """Edges from source nodes to destination nodes; the destinations are the first sources.

    A whole graph is the block in which all nodes are both.
    """

    indptr: Tensor
    """int64 (num_dst + 1,): in-edges of destination v are edges indptr[v] to indptr[v + 1]."""
    indices: Tensor
    """int32 (E,), int64 on graphs beyond 2^31 nodes: source of each edge, below num_src; empty where `mean` is set."""
    num_src: int
    degree: Tensor | None = None
    """float32 (num_src,): in-degrees in the whole graph, where the block holds a sample of the in-edges."""
    weight: Tensor | None = None
    """float32 (E,): edges' weights, times what makes the sum of the sampled edges unbiased; None: all alike."""
    edge_feat: Tensor | None = None
    """float32 (E, De)."""
    edge_feat_cat: Tensor | None = None
    """int64 (E, Ce)."""
    edge_type: Tensor | None = None
    """int64 (E,): relation of each edge, on heterogeneous graphs."""
    edge_type_counts: tuple[int, ...] | None = None
    """Edges of relations 0, 1, ..., where they were counted on the CPU: counting them on a GPU would wait for it."""
    mean: Tensor | None = None
    """(num_dst, D): the mean of the in-neighbours' input features where the loader took it while it gathered them.

    The block then has no sources but the destinations; `indptr` still counts the edges that were drawn.
    """
    num_drawn: int | None = None
    """How many edges the mean is of, where the CPU knows that: counting them on a GPU would wait for it."""
    symmetric: bool = False
    """Whether each edge comes with its reverse, which saves the transpose."""
    adjacency: Adjacency = field(init=False, repr=False, compare=False)
    """The edges as the kernels take them; keeps their transpose."""
    _cache: dict[str, Any] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.adjacency = Adjacency(self.indptr, self.indices, self.num_src, symmetric=self.symmetric)

    @property
    def num_dst(self) -> int:
        """Number of destination nodes."""
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        """Number of edges, those whose mean the loader took included."""
        if self.mean is None:
            return len(self.indices)
        return int(self.indptr[-1]) if self.num_drawn is None else self.num_drawn

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
    def weight_sums(self) -> Tensor:
        """Sum of the in-edges' weights, (num_dst,); 1 where it is 0."""
        assert self.weight is not None
        ones = torch.ones(self.num_src, 1, device=self.weight.device)
        sums = weighted_sum(self.adjacency, ones, self.weight).squeeze(1)
        return sums.masked_fill(sums == 0, 1)

    @cached_property
    def scale(self) -> Tensor | None:
        """True over sampled degree, float32 (num_dst,): makes a sampled sum unbiased; None if nothing was sampled."""
        if self.degree is None:
            return None
        return self.degree[: self.num_dst] / self.counts.clamp(min=1)

    def target_scale(self, reduce: str) -> Tensor | None:
        """Return what makes the `sum` or `mean` of `aggregate` of a plain (weighted) sum: float32 (num_dst,) or None.

        A mean's is one over the number of in-edges or the sum of their weights; a sum's is `scale`, if no weights are
        there to make it unbiased.
        """
        if reduce == "mean":
            return self.adjacency.degree_scale() if self.weight is None else self.weight_sums.reciprocal()
        return self.scale if self.weight is None else None


@dataclass
class Inputs(Movable):
    """What is known of the first block's source nodes."""

    node_ids: Tensor
    """int64 (n,): ids in the graph; index learnable embeddings."""
    feat: Tensor | None = None
    """float32 (n, D)."""
    feat_cat: Tensor | None = None
    """int64 (n, C)."""
    label: Tensor | None = None
    """int64 (n,): known labels that a model may read, -1 where there is none (label reuse)."""
    node_type: Tensor | None = None
    """int64 (n,): type of each node, on heterogeneous graphs."""
    node_type_counts: tuple[int, ...] | None = None
    """Nodes of types 0, 1, ..., where they were counted on the CPU."""


class StepBatch(Movable):
    """What a step of training asks of a batch, whatever the model reads in it."""

    target: Tensor
    """int64 (n,) or float32 (n, T): what the scores should be."""
    num_seeds: int
    num_edges: int
    """Edges that messages pass along, all layers together."""


@dataclass
class Batch(StepBatch):
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
    """int64 (2, n): node pairs in the last layer's numbering, positives first (link tasks), or edges' ends."""
    own_feat: Tensor | None = None
    """float32 (n, De): what the edges that are scored carry (edge tasks)."""
    own_feat_cat: Tensor | None = None
    """int64 (n, Ce)."""
    graph_offsets: Tensor | None = None
    """int64 (n + 1,): nodes of each graph (graph tasks)."""
    num_edges: int = field(default=0)
    """Edges that messages pass along, all layers together."""

    def block(self, layer: int) -> Block:
        """Return the block of a layer."""
        return self.blocks[layer] if len(self.blocks) > 1 else self.blocks[0]


def aggregate(block: Block, x: Tensor, reduce: str) -> Tensor:
    """Reduce sources over in-edges; no messages are stored.

    y_v = reduce_{u in N(v)} x_u, x (num_src, D) -> (num_dst, D); 0 without neighbours.

    `reduce` is sum, mean or max; else a ValueError.
    With weights the sum is that of w_uv x_u and the mean is divided by the sum of w_uv; max ignores them. A sum over
    sampled neighbours without weights is scaled by true over sampled degree, so that its expectation is the full sum.
    """
    if reduce not in ("sum", "mean", "max"):
        raise ValueError(f"aggregate: reduce is sum, mean or max, not {reduce!r}")
    if block.mean is not None:
        assert reduce != "max", "the loader took a mean for a model that reads the neighbours themselves"
        return block.mean if reduce == "mean" else block.mean * block.degrees.unsqueeze(1).to(block.mean.dtype)
    if reduce == "max":
        return max_rows(block.adjacency, x)
    return weighted_sum(block.adjacency, x, block.weight, target_scale=block.target_scale(reduce))
