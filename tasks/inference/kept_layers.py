"""All layers' outputs of a graph, kept in files; of a newer graph only what changed is computed.

A row of a layer's output is taken from the earlier graph where nothing that it reads has changed: its own row and its
in-neighbours' rows of the layer before, its in-edges, their order and what they carry; and degrees, where the model
reads them. Rows are computed so that their bits follow from that alone (`row_stable`). As nobody can know beforehand
whether a model's own operations keep to that, every pass computes some rows once more, in other chunks.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute
from numpy.typing import NDArray

from models.base import GraphModel
from tasks.arrays import blocks, row_blocks
from tasks.inference.former_layers import FormerLayers
from tasks.inference.layerwise import bounded_slices, chunk_rows, out_dims
from tasks.inference.row_stable import RowStable, features_of
from tasks.sampling.rows.features import FeatureSource
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.graph_store import Array, GraphStore, create_array
from tasks.storage.ids import IdMap

ENCODED = "encoded.npy"
_AUDITED = (1, 65, 256)
"""Rows of chunks, as of a day on which little changed, in which a full pass computes some rows of each layer again."""
_LEAST_AUDITED, _MOST_AUDITED, _AUDITED_SHARE = 1 << 13, 1 << 17, 32
"""Rows and in-edges of a chunk that is computed again, at most: that part of the graph's within these bounds."""
_ROWS = 1 << 16
Compute = Callable[[Array], Array]
"""From nodes, int64 (n,), to their rows, float32 (n, D)."""


class AuditError(Exception):
    """A row is not what is computed for it in another chunk."""


@dataclass
class Told:
    """What was computed and what was taken over."""

    computed: list[int] = field(default_factory=list)
    """Rows computed of each layer."""
    rows: int = 0
    """How many there are of each."""
    audited: int = 0
    """Rows that were computed in other chunks too, and were equal."""
    seconds: float = 0.0
    warning: str | None = None
    """Why nothing was taken over after all, or can be from this pass."""


class KeptLayers(RowStable):
    """Computes a graph's layers into files, from those of an earlier graph where there is one."""

    def __init__(
        self,
        store: GraphStore,
        folder: Path,
        scratch: Path | None = None,
        chunk_edges: int = 1 << 20,
        *,
        is_complete: bool = False,
    ) -> None:
        """`folder`: where outputs are kept, or lie already (`is_complete`)."""
        super().__init__(store, scratch, chunk_edges)
        self.store, self.folder, self.is_complete = store, folder, is_complete
        self.told = Told(rows=self.num_nodes)
        self._former: FormerLayers | None = None
        self._changes: Changes | None = None
        self._found: Array | None = None

    def compare(self, model: GraphModel, dataset: DatasetStore, former: FormerLayers) -> None:
        """Find what changed since an earlier graph, whose outputs by the same model were kept."""
        started = time.perf_counter()
        store, other = GraphStore.open(former.graph), DatasetStore.open(former.dataset)
        earlier = RowStable(store, self.scratch, self.chunk_edges)
        self._former = former
        self._changes = find_changes(model, self, dataset, earlier, other, (self.store, store))
        self.told.seconds += time.perf_counter() - started

    def vectors(self, model: GraphModel, nodes: Array | None = None) -> NDArray[np.float32]:  # type: ignore[override]
        """Return vectors of nodes, int64 (n,) distinct (None: all), float32 (n, vector_dim); computed once.

        Raises AuditError.
        """
        if self._found is None:
            started = time.perf_counter()
            self._found = self._run(model)
            self.told.seconds += time.perf_counter() - started
        return self._found if nodes is None else self._found[nodes]

    def _run(self, model: GraphModel) -> Array:
        features, changes = features_of(self.store, model), self._changes
        changed = np.full(self.num_nodes, not self.is_complete) if changes is None else ~changes.inputs
        before: Array | None = None
        if not model.encoder.is_plain:
            encode = partial(self.encoded_rows, model, features)
            before, changed = self._fill(ENCODED, model.encoder.out_dim, changed, encode, _ROWS)
        for number, layer in enumerate(model.layers):
            need = self._needed(model, changed)
            run = partial(self.layer_rows, layer, features, features.feat if before is None else before)
            columns, rows = out_dims(model)[number], chunk_rows(model, self.chunk_edges)
            after, changed = self._fill(f"layer{number}.npy", columns, need, run, rows)
            self.told.computed.append(int(need.sum()))
            before = after
        assert before is not None
        return before

    def _needed(self, model: GraphModel, changed: Array) -> Array:
        """Return which rows of the next layer are to be computed, where `changed` rows of this one are new."""
        changes = self._changes
        if changes is None:
            return np.full(self.num_nodes, not self.is_complete)
        read = changed | ~changes.degrees if model.reads_degrees else changed
        need = changed | ~changes.edges
        for start, end in row_blocks(self.indptr, self.chunk_edges):
            first, last = self.indptr[start], self.indptr[end]
            count = np.concatenate([[0], np.cumsum(read[self.indices[first:last]])])
            bounds = self.indptr[start : end + 1] - first
            need[start:end] |= count[bounds[1:]] > count[bounds[:-1]]
        return need

    def _fill(self, name: str, columns: int, need: Array, compute: Compute, rows: int) -> tuple[Array, Array]:
        """Write an output, (N, columns), of which the rows in `need` are computed.

        Returns it, and which rows are not those of the earlier graph: bool (N,).
        """
        if self.is_complete:
            return np.load(self.folder / name, mmap_mode="r"), need
        after = create_array(self.folder / name, (self.num_nodes, columns), np.float32)
        earlier, changes = None, self._changes
        if changes is not None:
            assert self._former is not None
            earlier = np.load(self._former.layers / name, mmap_mode="r")
            for part in blocks(self.num_nodes, _ROWS):
                taken = part.start + np.flatnonzero(~need[part])
                after[taken] = earlier[changes.former[taken]]
        needed, changed = np.flatnonzero(need), need.copy()
        counts = (self.indptr[needed + 1] - self.indptr[needed]).cumsum()
        parts = list(bounded_slices(counts, self.chunk_edges, min(rows, _ROWS)))
        for part in parts:
            some = needed[part]
            values = compute(some)
            after[some] = values
            if earlier is not None and changes is not None:
                known = changes.former[some] >= 0
                old = earlier[changes.former[some][known]]
                changed[some[known]] = ~rows_equal(values[known], old)
        self._audit(after, self._chunks(rows, parts, None if earlier is None else ~need), compute)
        return after, changed

    def _chunks(self, rows: int, parts: list[slice], taken: Array | None) -> list[Array]:
        """Draw nodes that are computed once more; `taken`, bool (N,): those that were taken over.

        Where none were, a few, as a later pass may take them. Else as a full pass takes them (its last chunk, which is
        short, and any other), and of what was taken over as many as the largest and the last chunk computed; and a few.
        """
        draw = np.random.default_rng(self.num_nodes)
        if taken is None:
            return [draw.choice(self.num_nodes, min(count, self.num_nodes), replace=False) for count in _AUDITED]
        full = list(bounded_slices(self.indptr[1 : self.num_nodes + 1], self.chunk_edges, min(rows, _ROWS)))
        chosen = dict.fromkeys((int(draw.integers(len(full))), len(full) - 1))
        chunks = [np.arange(full[i].start, full[i].stop) for i in chosen]
        nodes, sizes = np.flatnonzero(taken), [part.stop - part.start for part in parts]
        draw = np.random.default_rng(len(nodes))
        counts = dict.fromkeys(min(count, len(nodes)) for count in (*sizes[-1:], max(sizes, default=1), *_AUDITED))
        return chunks + [draw.choice(nodes, count, replace=False) for count in counts if count]

    def _audit(self, after: Array, chunks: list[Array], compute: Compute) -> None:
        """Compute chunks (of large ones the beginning) again; AuditError where rows were taken over and one differs."""
        most = min(max(int(self.indptr[-1]) // _AUDITED_SHARE, _LEAST_AUDITED), _MOST_AUDITED)
        for chunk in chunks:
            work = (self.indptr[chunk + 1] - self.indptr[chunk] + 1).cumsum()
            some = chunk[: max(1, int(np.searchsorted(work, most, side="right")))]
            wrong = int((~rows_equal(compute(some), after[some])).sum())
            if wrong:
                text = f"{wrong:,} of {len(some):,} rows that were computed in another chunk too differ"
                if self._changes is not None:
                    raise AuditError(text)
                self.told.warning = (
                    f"{text}: this model's rows follow from others computed beside them, so nothing can be taken over "
                    "from this pass, and --keep-layers brings it nothing"
                )
                return
            self.told.audited += len(some)


@dataclass(frozen=True)
class Changes:
    """A graph's nodes beside those of an earlier graph."""

    former: Array
    """int64 (N,): the node's number in the earlier graph; -1: it was not there."""
    inputs: Array
    """bool (N,): whether what its encoder reads is equal."""
    edges: Array
    """bool (N,): whether its in-edges come from the same nodes, in the same order, and carry the same."""
    degrees: Array
    """bool (N,): whether it has as many in-edges."""


def find_changes(
    model: GraphModel, here: RowStable, dataset: DatasetStore, former: RowStable, former_dataset: DatasetStore,
    stores: tuple[GraphStore, GraphStore],
) -> Changes:  # fmt: skip
    """Compare the graph `here` with a former one by their users' ids; `stores` are theirs, in that order.

    A wrong match does no harm: a node counts as unchanged only where all that a model reads of it is equal to the bit.
    """
    matched = match_nodes(stores[0], dataset, stores[1], former_dataset)
    own, other = (features_of(store, model) for store in stores)
    inputs, degrees = matched >= 0, matched >= 0
    for name in ("feat", "feat_cat", "label", "node_type"):
        _compare_rows(getattr(own, name), getattr(other, name), matched, inputs)
    connected = np.flatnonzero(degrees)
    degrees[connected] = np.diff(here.indptr)[connected] == np.diff(former.indptr)[matched[connected]]
    edges = degrees.copy()
    for start, end in row_blocks(here.indptr, here.chunk_edges):
        nodes = start + np.flatnonzero(edges[start:end])
        edges[nodes] = _edges_equal(here, former, (own, other), nodes, matched)
    return Changes(matched, inputs, edges, degrees)


def _edges_equal(
    here: RowStable, former: RowStable, features: tuple[FeatureSource, FeatureSource], nodes: Array, matched: Array
) -> Array:
    """Return which nodes, int64 (n,), that have as many in-edges in both graphs have the same: bool (n,)."""
    offsets, sources, positions = here.in_edges(nodes)
    _, other_sources, other_positions = former.in_edges(matched[nodes])
    equal = matched[sources] == other_sources
    for name in ("edge_feat", "edge_feat_cat", "edge_weight", "edge_type"):
        table, other = (getattr(one, name) for one in features)
        if table is not None:
            equal &= rows_equal(table[positions], other[other_positions])
    wrong = np.concatenate([[0], np.cumsum(~equal)])
    return np.asarray(wrong[offsets[1:]] == wrong[offsets[:-1]])


def _compare_rows(table: Array | None, other: Array | None, matched: Array, equal: Array) -> None:
    """Clear `equal` where a node's row differs."""
    if table is None:
        return
    assert other is not None, "graphs that one model reads have the same arrays"
    for part in blocks(len(table), _ROWS):
        nodes = part.start + np.flatnonzero(equal[part])
        equal[nodes] = rows_equal(table[nodes], other[matched[nodes]])


def rows_equal(rows: Array, others: Array) -> Array:
    """Compare rows (n, ...) bit by bit: bool (n,). A number that is none equals itself."""
    if rows.dtype != others.dtype or rows.shape != others.shape:
        return np.zeros(len(rows), np.bool_)
    if not rows.size:
        return np.ones(len(rows), np.bool_)
    left, right = (np.ascontiguousarray(one).reshape(len(one), -1).view(np.uint8) for one in (rows, others))
    return np.asarray((left == right).all(1))


def match_nodes(graph: GraphStore, dataset: DatasetStore, former: GraphStore, former_dataset: DatasetStore) -> Array:
    """Return the number in the former graph of each node, int64 (N,); -1 for those that were not there.

    Nodes are the same by their type and their users' id, or where two graphs are of one data set by their row in it.
    An id that names several nodes names none here.
    """
    matched = np.full(graph.manifest.num_nodes, -1, np.int64)
    ids, former_ids = IdMap(graph, dataset), IdMap(former, former_dataset)
    same_rows = dataset.manifest.digest == former_dataset.manifest.digest
    for kind in graph.manifest.node_types:
        if kind not in former.manifest.node_types:
            continue
        nodes, others = (one.nodes_of_type(kind, left_out=-1) for one in (ids, former_ids))
        if same_rows or f"ids/{kind}" not in dataset or f"ids/{kind}" not in former_dataset:
            row = np.arange(len(nodes))
        else:
            here, then = (one.read(f"ids/{kind}", ["original_id"]).column(0) for one in (dataset, former_dataset))
            if here.type != then.type:
                here, then = here.cast(pa.string()), then.cast(pa.string())
            # -1 for those that are new or repeat.
            row = np.asarray(compute.fill_null(compute.index_in(here, value_set=then), -1), np.int64)[: len(nodes)]
        found = np.where((row >= 0) & (row < len(others)), others[np.clip(row, 0, max(len(others) - 1, 0))], -1)
        matched[nodes[nodes >= 0]] = found[nodes >= 0]
    return matched
