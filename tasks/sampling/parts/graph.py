"""The part of a graph that a machine holds, and which rank holds any other."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from tasks.arrays import Array
from tasks.sampling.neighborhoods.relabel import Numbering
from tasks.sampling.parts.ranges import Exchange, Ranges
from tasks.storage.graph_store import EDGE_ARRAYS, NODE_ARRAYS, GraphStore, open_rows
from tasks.storage.manifests import PartitionManifest

_SEEDS = ("train_idx", "valid_idx", "test_idx")
_TRAIN_EDGES = ("train_edges", "train_edge_weight")
CACHE_SHARE = 1 / 8
"""Of what a rank's own rows take, for rows of others, where `cache_bytes` is None."""


class PartGraph(GraphStore):
    """The nodes first to end - 1 of a graph: their in-edges and rows, and the seeds among them.

    Parts of a partition lie end to end. Each rank is asked for the nodes of its own parts; the ranks of one machine
    read all parts of the machine. Arrays are maps of the bytes of this range alone, whether the file is a shared one or
    a local copy that holds no more than them.

    | array | here |
    |---|---|
    | `csc_indptr` | int64 (end - first + 1,), from 0 on, in memory |
    | `csc_indices`, edge data | of the in-edges of this range; sources are ids in the whole graph |
    | node data | rows of this range: node v is row v - first |
    | `train_idx`, ... | ids in the whole graph of the nodes in `own`, the rank's own range; or of all |
    | `train_edges` | ids in the whole graph of edges that lead into `own`; or of all |
    """

    def __init__(
        self,
        store: GraphStore,
        bounds: Array,
        exchange: Exchange,
        of_machine: range | None = None,
        *,
        own_seeds: bool = True,
        cache_bytes: float | None = None,
    ) -> None:
        """Open a machine's part.

        Args:
            store: the whole graph, of which only files' names and shapes are read.
            bounds: int64 (world_size + 1,): rank r is asked for nodes bounds[r] to bounds[r + 1] - 1.
            exchange: what the thread that makes batches talks to other ranks by.
            of_machine: the ranks of this machine; None: this one alone.
            own_seeds: whether a split's seeds are those of the rank's own range, not all.
            cache_bytes: memory for rows of other machines that batches read most; None: an eighth of what the rank's
                own rows take.
        """
        assert isinstance(store.manifest, PartitionManifest)
        super().__init__(store.folder, store.manifest)
        rank = exchange.rank
        of_machine = of_machine or range(rank, rank + 1)
        self._own_seeds, self.cache_bytes, self.local_size = own_seeds, cache_bytes, len(of_machine)
        self.bounds, self.exchange = np.ascontiguousarray(bounds, np.int64), exchange
        self.first, self.end = int(bounds[of_machine.start]), int(bounds[of_machine.stop])
        self.own = int(bounds[rank]), int(bounds[rank + 1])
        """First node of this rank's own range, and the one after its last."""
        offsets = self._rows("csc_indptr", self.first, self.end + 1)
        self._edges = int(offsets[0]), int(offsets[-1])
        self._open["csc_indptr"] = offsets - offsets[0]

    def __getitem__(self, name: str) -> Array:
        """Return this machine's rows of an array. Raises KeyError naming what there is."""
        name = self._resolve(name)
        if name not in self._open:
            if name not in self.manifest.arrays:
                return super().__getitem__(name)  # says what there is
            self._open[name] = self._part(name)
        return self._open[name]

    @cached_property
    def numbering(self) -> Numbering:
        """Local numbers, for the one thread that makes batches: good until the next call that uses them."""
        return Numbering(self.manifest.num_nodes, self["csc_indices"].dtype)

    def rows_of(self, name: str, rows: Sequence[Array]) -> list[Array]:
        """Return rows of a node array, for lists of nodes; all ranks together, unless seeds are a rank's own."""
        table = self[name]
        if self._own_seeds:
            return [self.own_rows(name, some) for some in rows]
        own = table[self.own[0] - self.first : self.own[1] - self.first]
        wanted = [np.asarray(some) for some in rows]
        fetched = Ranges(self.bounds, self.exchange).fetch_any(own, np.concatenate(wanted))
        return np.split(fetched, np.cumsum([len(some) for some in wanted])[:-1])

    @property
    def num_seeds(self) -> int:
        """Training nodes in the rank's own range, or edges that lead there."""
        return (
            len(self.own_seeds("train")) if self.manifest.split_rows.are_nodes else int(np.diff(self._own_edges())[0])
        )

    def own_seeds(self, split: str) -> Array:
        """Return a split's nodes in the rank's own range, ascending ids."""
        return self._seeds_between(f"{split}_idx", *self.own)

    def training_rows(self) -> Array:
        """Return those of this machine."""
        return self._seeds_between("train_idx", self.first, self.end) - self.first

    def _seeds_between(self, name: str, first: int, end: int) -> Array:
        start, stop = (self._place(name, node) for node in (first, end))
        return np.asarray(self._rows(name, start, stop))

    def _own_edges(self) -> tuple[int, int]:
        """Return where the training edges begin and end that lead into the rank's own range: they lie by part."""
        start, stop = (self._place("train_edges", node) for node in self.own)
        return start, stop

    def even_rows(self, name: str) -> Array:
        """Return this rank's share of an array's rows where every rank takes equally many, in the ranks' order."""
        count, size = self.manifest.arrays[name].shape[0], self.exchange.world_size
        start, stop = (count * rank // size for rank in (self.exchange.rank, self.exchange.rank + 1))
        return self._rows(name, start, stop)

    def own_rows(self, name: str, nodes: Array) -> Array:
        """Return rows of a node array for nodes of this machine."""
        return np.asarray(self[name][np.asarray(nodes) - self.first])

    def _part(self, name: str) -> Array:
        if name in NODE_ARRAYS:
            return self._rows(name, self.first, self.end)
        if name in EDGE_ARRAYS or name == "csc_indices":
            return self._rows(name, *self._edges)
        if name in _SEEDS and self.manifest.split_rows.are_nodes:
            count = self.manifest.arrays[name].shape[0]
            return self.own_seeds(name.removesuffix("_idx")) if self._own_seeds else self._rows(name, 0, count)
        if name in _TRAIN_EDGES:
            whole = 0, self.manifest.arrays[name].shape[0]
            return self._rows(name, *(self._own_edges() if self._own_seeds else whole))
        raise KeyError(f"no machine holds {name!r} of a graph in parts")

    def _rows(self, name: str, start: int, stop: int) -> Array:
        entry = self.manifest.arrays[name]
        return open_rows(self.folder / entry.path, entry, start, stop)

    def _place(self, name: str, node: int) -> int:
        """Return where nodes from `node` on stand in an array that ascends, of edges by part; reads a few entries."""
        places = range(self.manifest.arrays[name].shape[0])
        return bisect_left(places, node, key=lambda at: int(self._rows(name, at, at + 1).reshape(-1)[-1]))
