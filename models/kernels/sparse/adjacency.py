"""The edges that a kernel runs over: in-edges by destination (CSC), their transpose, ranges of equal work.

And ranges of sources, whose sums have a copy each: no race.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor

from models.kernels.threads import CHUNKS_A_THREAD, num_threads

_ROW_COST = 4  # a row's fixed cost, in edges
_MOST_SORTED = 1 << 31  # edges that torch sorts on a GPU, and whose positions fit int32: fewer than so many
_SMALL = 1 << 13  # below this work a second thread costs more than it brings


@dataclass(frozen=True)
class Transposed:
    """Out-edges by source."""

    indptr: Tensor
    """int64 (num_src + 1,)."""
    indices: Tensor
    """int32 or int64 (E,): destination of each edge, ascending within a source."""
    edges: Tensor
    """int32 or int64 (E,): the edge's position in the CSC."""


@dataclass
class Adjacency:
    """Edges from num_src sources to num_dst destinations: those into v are indptr[v] to indptr[v + 1]."""

    indptr: Tensor
    """int64 (num_dst + 1,), from 0."""
    indices: Tensor
    """int32 or int64 (E,): source of each edge."""
    num_src: int
    transposed: Transposed | None = None
    """The out-edges, where they are known already."""
    symmetric: bool = False
    """Whether v is a source of u as often as u is one of v: without edge values the transpose is then not needed."""
    _reversed: Adjacency | None = field(default=None, repr=False)
    _bounds: dict[int, NDArray[np.int64]] = field(default_factory=dict, repr=False)

    @property
    def num_dst(self) -> int:
        """Number of destinations."""
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        """Number of edges."""
        return len(self.indices)

    def transpose(self) -> Transposed:
        """Return the out-edges, made once."""
        if self.transposed is None:
            self.transposed = transpose(self.indptr, self.indices, self.num_src)
        return self.transposed

    def reverse(self, ordered: bool = True) -> Adjacency:
        """Return the same edges from destinations to sources.

        They stand in the transpose's order; with `ordered` False in any, so that a symmetric adjacency is its own.
        """
        if self.symmetric and not ordered:
            return self
        if self._reversed is None:
            out = self.transpose()
            self._reversed = Adjacency(out.indptr, out.indices, self.num_dst)
        return self._reversed

    def degree_scale(self) -> Tensor:
        """Return 1 / max(in-degree, 1): float32 (num_dst,)."""
        return self.degrees().clamp(min=1).to(torch.float32).reciprocal()

    def degrees(self) -> Tensor:
        """Return the in-degrees: int64 (num_dst,)."""
        return self.indptr[1:] - self.indptr[:-1]

    def targets(self) -> Tensor:
        """Return each edge's destination: int64 (E,)."""
        return torch.repeat_interleave(self.degrees(), output_size=self.num_edges)

    def chunks(self) -> NDArray[np.int64]:
        """Return bounds of row ranges of about equal work for `threads.run_rows`."""
        threads = num_threads()
        if threads not in self._bounds:
            self._bounds[threads] = split_rows(self.indptr.numpy(), threads)
        return self._bounds[threads]


def split_rows(indptr: NDArray[np.int64], threads: int) -> NDArray[np.int64]:
    """Return bounds of row ranges whose edges and rows cost about the same."""
    rows = len(indptr) - 1
    work = int(indptr[-1]) + _ROW_COST * rows
    count = 1 if threads == 1 or work < _SMALL else threads * CHUNKS_A_THREAD
    aims = work * np.arange(1, count) // count
    inner = np.searchsorted(indptr + _ROW_COST * np.arange(rows + 1), aims) if count > 1 else aims
    return np.concatenate([[0], inner, [rows]])


def transpose(indptr: Tensor, indices: Tensor, num_src: int) -> Transposed:
    """Return the edges by source, by counting: stable, so destinations ascend."""
    if indptr.is_cuda and len(indices) >= _MOST_SORTED:
        transposed = transpose(indptr.cpu(), indices.cpu(), num_src)
        return Transposed(
            *(part.to(indptr.device) for part in (transposed.indptr, transposed.indices, transposed.edges))
        )
    if indptr.is_cuda:
        return transpose_by_sorting(indptr, indices, num_src)
    targets = torch.empty_like(indices)
    edges = torch.empty(len(indices), dtype=torch.int32 if len(indices) < _MOST_SORTED else torch.int64)
    starts = _transpose(indptr.numpy(), indices.numpy(), num_src, targets.numpy(), edges.numpy())
    return Transposed(torch.from_numpy(starts), targets, edges)


def transpose_by_sorting(indptr: Tensor, indices: Tensor, num_src: int) -> Transposed:
    """Do `transpose` by torch's functions, none of which waits for a GPU: all sizes are known. Not yet run on one."""
    sources, order = torch.sort(indices, stable=True)
    starts = torch.searchsorted(sources, torch.arange(num_src + 1, dtype=indices.dtype, device=indices.device))
    targets = torch.searchsorted(indptr, order, right=True) - 1
    return Transposed(starts, targets.to(indices.dtype), order.to(indices.dtype))


@njit(cache=True, nogil=True)
def _transpose(indptr, indices, num_src, targets, edges):  # type: ignore[no-untyped-def]
    start = np.zeros(num_src + 2, np.int64)  # two ahead, so that filling leaves the bounds behind
    for e in range(len(indices)):
        start[indices[e] + 2] += 1
    for u in range(num_src):
        start[u + 2] += start[u + 1]
    for v in range(len(indptr) - 1):
        for e in range(indptr[v], indptr[v + 1]):
            at = start[indices[e] + 1]
            start[indices[e] + 1] = at + 1
            targets[at] = v
            edges[at] = e
    return start[: num_src + 1]


_MOST = 16
"""Ranges at most: each has a copy of the sums, which would outgrow the rows themselves."""


def few_ranges(adj: Adjacency) -> NDArray[np.int64]:
    """Return bounds of row ranges, one a thread, up to `_MOST`, none of them empty.

    What is summed in a copy a range is so rounded by the number of threads: were there as many copies for all, one
    thread would pay for what only several need.
    """
    bounds = adj.chunks()
    step = max(CHUNKS_A_THREAD, -(-(len(bounds) - 1) // _MOST))
    return np.unique(np.append(bounds[:-1:step], bounds[-1]))


def out_edges(adj: Adjacency, needs_positions: bool) -> tuple[Adjacency, Tensor]:
    """Return the edges from destinations to sources, and each one's position in `adj` if a kernel reads that."""
    if needs_positions:
        return adj.reverse(), adj.transpose().edges
    out = adj.reverse(ordered=False)
    return out, out.indices


@njit(inline="always")
def range_number(bounds, low):  # type: ignore[no-untyped-def]
    """Return which range, not an empty one, begins at `low`."""
    number = 0
    while bounds[number + 1] <= low:
        number += 1
    return number
