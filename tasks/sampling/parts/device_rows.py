"""Numeric features of nodes that lie in the memory of the ranks' devices, and travel from device to device.

Not yet run on a GPU: tested on the CPU, where gloo takes NCCL's place.

The thread that makes batches finds out, over the CPU, which rows a group of batches needs and who has them (`place`).
The rows themselves travel when the first batch of the group is taken, and a batch's are gathered when it is taken
(`gather`), by the thread that trains and on its stream. So

- ranks issue their device collectives, these and those of gradients, from one thread each and in the order of the
  steps, which is the same on all; two threads would issue them in any order, and NCCL's kernels, which wait for each
  other, could wait crosswise for ever;
- each is behind the one before it on the device too: rows are sent on the stream that waited for the last step's
  gradients, and the next gradients need the rows. No two run at once, so that NCCL's one communicator is enough;
- the rows of one group can be written over by those of the next: what was gathered from them is ahead on the stream.

What other streams have made, the index tensors, comes with the batch, and the stream waits for it (`Upload.receive`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from configs.errors import RecipeError
from models.block import PendingRows
from models.kernels.backends import on_triton
from models.kernels.tables.byte_rows import SCALE_BYTES
from tasks.arrays import blocks
from tasks.sampling.parts.exchange import Array
from tasks.sampling.parts.graph import CACHE_SHARE, PartGraph
from tasks.sampling.parts.places import Request, RowPlaces
from tasks.sampling.parts.sampler import PartSample
from tasks.sampling.rows.features import FeatureSource
from tasks.sampling.rows.gather import num_columns
from tasks.sampling.rows.stored_rows import stored_rows

_CHUNK_ROWS = 1 << 16
_NUMBERS_AT_ONCE = 1 << 25
"""Of edges' rows whose means are taken: 134 MB in float32, and four times as much for a moment."""
_SPARE = 8  # an eighth more room than asked for, since no two groups of batches are of one size
_SHARE = 0.6
"""Of a device's free memory, for rows that stay: the rest is for the training's own."""


@dataclass(eq=False)
class Group:
    """What batches that are sampled together need of other ranks."""

    asked: Tensor
    """On the device: rows here that others want, as of `Request`; or the nodes that this rank wants."""
    request: Request | None = None


@dataclass
class WantedRows(PendingRows):
    """The rows of one batch."""

    source: DeviceRows
    group: Group
    nodes: Tensor
    """Integer (n,): r >= 0 is row r of this rank, r < 0 is row ~r of those that came."""
    sources: Tensor | None = None
    """Of the first block's edges, (E,), where it wants their mean."""
    cuts: tuple[tuple[int, int, int, int], ...] = ()
    """Of a mean: first destination and the one after the last, first edge and the one after the last."""

    def gather(self, indptr: Tensor) -> tuple[Tensor, Tensor | None]:
        """Bring the group's rows, if this is its first batch, and take this batch's."""
        self.source.bring(self.group)
        return self.source.gather(self, indptr)


class DeviceRows(RowPlaces, ABC):
    """Features in devices' memory; what they are given out as is equal to the bit to what `gather` gives out."""

    own: Tensor
    """Rows of this rank, (N, W) float32, float16, bfloat16, or int8 as of `byte_rows`; at least one."""
    came: Tensor
    """Rows that came from other ranks; those that are kept come first."""

    def __init__(self, graph: PartGraph, here: tuple[int, int], features: FeatureSource, device: torch.device) -> None:
        """`here`: as of `RowPlaces`. Raises RecipeError: there is no room for them, or DataError, see `stored_rows`."""
        super().__init__(graph, here)
        assert features.feat is not None, "rows of numeric features"
        self.device, self.dtype = device, features.dtype
        # What is given out in bfloat16 is rounded anyway, and takes less room.
        narrow = features.rows == "stored" and features.dtype == torch.bfloat16
        self.kind = "bfloat16" if narrow else features.rows
        start = graph.own[0] - graph.first
        self.feat = features.feat[start : start + graph.own[1] - graph.own[0]]
        one = self._stored(self.feat[:1])
        self.num_columns = num_columns(stored_rows(self.feat[:1], self.kind))
        self.row_bytes = one.shape[1] * one.itemsize
        self._refuse_excess()
        self._group: Group | None = None

    def place(self, nodes: Sequence[Array], outer: Sequence[PartSample] = ()) -> list[WantedRows]:
        """Return what the features of each batch are gathered by; all ranks together.

        Args:
            nodes: of each batch, (n,), like the graph's ids.
            outer: layers whose destinations are those nodes and whose sources, ids, a mean is taken of; or none.
        """
        rows, missing = self.locate([*nodes, *(layer.indices for layer in outer)])
        group = self._ask(missing, rows)
        indices = [torch.from_numpy(some) for some in rows]
        if not outer:
            return [WantedRows(self, group, some) for some in indices]
        most = max(1, _NUMBERS_AT_ONCE // self.num_columns)
        cuts = [cut_destinations(layer.indptr, most) for layer in outer]
        both = zip(indices[: len(nodes)], indices[len(nodes) :], cuts, strict=True)
        return [WantedRows(self, group, *parts) for parts in both]

    def bring(self, group: Group) -> None:
        """Bring the rows of a group, unless they were the last that came; all ranks together, in the groups' order."""
        if group is self._group:
            return
        if group.asked.is_cuda:  # made on the stream that fills batches
            group.asked.record_stream(torch.cuda.current_stream(self.device))
        self._fetch(group)
        self._group = group

    def gather(self, wanted: WantedRows, indptr: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return what `PendingRows.gather` does: (n, D) each, the halves of one matrix if there are means."""
        width, parts = self.num_columns, 1 if wanted.sources is None else 2
        out = torch.empty(len(wanted.nodes), parts * width, dtype=self.dtype, device=self.device)
        own, mean = out[:, :width], out[:, width:]
        own.copy_(self._numbers(wanted.nodes))
        if wanted.sources is None:
            return own, None
        if on_triton(self.own):
            self._means_by_triton(wanted.sources, indptr, mean)
        else:
            for cut in wanted.cuts:
                self._mean(wanted.sources, indptr, *cut, mean)
        return own, mean

    def keep(self, nodes: Array) -> None:
        """Bring rows of other ranks' nodes (n,), distinct, that stay, where that is possible; all ranks together."""

    def describe(self) -> str:
        """Say what lies where."""
        return f"features of {len(self.feat):,} nodes in the memory of {self.device}, as {self.kind}"

    @abstractmethod
    def _ask(self, nodes: Array, rows: Sequence[Array]) -> Group:
        """Find out who has the rows of nodes (m,), see `RowPlaces.ask`; called by the thread that makes batches."""

    @abstractmethod
    def _fetch(self, group: Group) -> None:
        """Fill `came`; called by the thread that trains."""

    def _numbers(self, rows: Tensor) -> Tensor:
        """Return rows as float32 (n, D)."""
        here = self.own.index_select(0, rows.clamp(min=0))
        there = self.came.index_select(0, (~rows).clamp(min=0))
        found = torch.where((rows >= 0)[:, None], here, there)
        if found.dtype != torch.int8:
            return found.float()
        scale = found[:, -SCALE_BYTES:].clone(memory_format=torch.contiguous_format).view(torch.float32)
        return found[:, :-SCALE_BYTES] * scale

    def _mean(
        self, sources: Tensor, indptr: Tensor, first: int, end: int, first_edge: int, end_edge: int, mean: Tensor
    ) -> None:
        """Fill rows first to end - 1 of `mean`; edges are added up in their order, as on the CPU."""
        rows = self._numbers(sources[first_edge:end_edge]).to(self.dtype).float()
        edges = indptr[first : end + 1] - first_edge
        sums = torch.segment_reduce(rows, "sum", offsets=edges, axis=0, unsafe=True)
        mean[first:end] = sums * (edges[1:] - edges[:-1]).clamp(min=1).float().reciprocal()[:, None]

    def _means_by_triton(self, sources: Tensor, indptr: Tensor, mean: Tensor) -> None:
        from tasks.sampling.device.feature_table import FeatureTable
        from tasks.sampling.device.rows_triton import gather_means

        table = FeatureTable(self.own, self.came, sources)  # whose "nodes" are edges
        edges = torch.arange(len(sources), device=self.device)
        count = torch.full((1,), len(mean), device=self.device)
        gather_means(table, indptr, edges, count, mean)

    def _stored(self, feat: Array) -> Tensor:
        """Return features (n, D) as they are held, on the CPU."""
        rows = torch.from_numpy(np.array(stored_rows(feat, self.kind)))
        return rows.view(torch.bfloat16) if rows.dtype == torch.uint16 else rows

    def _fill(self, own: Tensor) -> Tensor:
        """Write this rank's rows to `own`, and return it."""
        for some in blocks(len(self.feat), _CHUNK_ROWS):
            own[some] = self._stored(self.feat[some])
        return own

    def _refuse_excess(self) -> None:
        if self.device.type != "cuda":
            return
        count, cache = max(len(self.feat), 1), self.graph.cache_bytes
        own = count * self.row_bytes
        needed = own + (own * CACHE_SHARE if cache is None else cache)
        free = torch.cuda.mem_get_info(self.device)[0]
        if needed > _SHARE * free:
            raise RecipeError(
                f"train.strategy.rows_on: features of {count:,} nodes and the cache take {needed / 1e9:,.1f} GB, and "
                f"{self.device} has {free / 1e9:,.1f} GB free, of which the training needs some; set "
                "train.strategy.rows=int8 or float16, take more ranks, or set train.strategy.rows_on=host"
            )


class ExchangedRows(DeviceRows):
    """Each rank holds the rows of its own range, and asks others for the rest by all-to-all."""

    def __init__(self, graph: PartGraph, features: FeatureSource, device: torch.device) -> None:
        """Copy this rank's rows to the device; errors as of `DeviceRows`."""
        super().__init__(graph, graph.own, features, device)
        one = self._stored(self.feat[:1])
        self.own = self._fill(one.new_zeros((max(1, len(self.feat)), one.shape[1]), device=device))
        self.came = torch.zeros_like(self.own[:1])

    def keep(self, nodes: Array) -> None:
        """Bring rows of other ranks' nodes (n,), distinct, that stay; all ranks together, before the first batch."""
        self.kept = nodes[:0]
        group = self._ask(nodes, [])
        self.bring(group)
        assert group.request is not None
        self.kept = group.request.nodes

    def _ask(self, nodes: Array, rows: Sequence[Array]) -> Group:
        request = self.ask(nodes, rows)
        return Group(torch.from_numpy(request.asked).to(self.device), request)

    def _fetch(self, group: Group) -> None:
        request, kept = group.request, len(self.kept)
        assert request is not None
        came = self._room(kept + len(request.nodes))[kept : kept + len(request.nodes)]
        if self.graph.exchange.world_size > 1:
            sent = self.own.index_select(0, group.asked)
            bytes_in, bytes_out = came.view(torch.uint8), sent.view(torch.uint8)
            dist.all_to_all_single(bytes_in, bytes_out, request.expected, request.counts)

    def _room(self, count: int) -> Tensor:
        """Return `came` with so many rows at least, of which those that are kept are filled."""
        if len(self.came) < count:
            larger = self.came.new_empty((count + count // _SPARE, self.came.shape[1]))
            larger[: len(self.kept)] = self.came[: len(self.kept)]
            self.came = larger
        return self.came


def cut_destinations(indptr: Array, most: int) -> tuple[tuple[int, int, int, int], ...]:
    """Cut a layer where `most` edges and the rest of a destination's are together, see `WantedRows.cuts`."""
    inner = np.searchsorted(indptr, np.arange(most, indptr[-1], most))
    bounds = np.unique([0, *inner, len(indptr) - 1])
    edges = indptr[bounds]
    return tuple(zip(*(some.tolist() for some in (bounds[:-1], bounds[1:], edges[:-1], edges[1:])), strict=True))
