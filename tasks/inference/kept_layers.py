"""All layers' outputs of a graph, kept in files; of a newer graph only what changed is computed.

A row of a layer's output is taken from the earlier graph where nothing that it reads has changed: its own row and its
in-neighbours' rows of the layer before, which in-edges it has, in which order, and what they carry; and their
degrees, where the model reads them. Rows are computed so that their bits follow from what they read alone
(`row_stable`), so what is taken is what would be computed. Whether a model's own operations keep to that nobody can
know beforehand, so every pass tries it on its own rows and machine: some are computed once more, in chunks as the other
kind of pass would take them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.base import GraphModel
from tasks.arrays import row_blocks
from tasks.inference.changes import Changes, find_changes, read_graph, rows_equal
from tasks.inference.former_layers import FormerLayers
from tasks.inference.layerwise import bounded_slices, chunk_rows, out_dims
from tasks.inference.row_stable import RowStable, features_of
from tasks.sampling.rows.features import FeatureSource, take_rows
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.graph_store import Array, GraphStore, create_array, slices

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

    def record(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "computed": self.computed,
            "rows": self.rows,
            "audited": self.audited,
            "seconds": self.seconds,
            "warning": self.warning,
        }


def layer_file(number: int) -> str:
    """Return the file of a layer's output, counted from 0."""
    return f"layer{number}.npy"


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
        store, earlier = read_graph(former.graph, self.scratch, self.chunk_edges)
        other = DatasetStore.open(former.dataset)
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
        features, changed = features_of(self.store, model), self._changed_inputs()
        before: Array | None = None
        if not model.encoder.is_plain:
            encode = partial(self.encoded_rows, model, features)
            before, changed = self._fill(ENCODED, model.encoder.out_dim, changed, encode, _ROWS)
        for number, layer in enumerate(model.layers):
            need = self._needed(model, changed)
            run = partial(self.layer_rows, layer, features, _reader(before, features))
            name, columns = layer_file(number), out_dims(model)[number]
            after, changed = self._fill(name, columns, need, run, chunk_rows(model, self.chunk_edges))
            self.told.computed.append(int(need.sum()))
            before = after
        assert before is not None
        return before

    def _changed_inputs(self) -> Array:
        changes = self._changes
        return np.full(self.num_nodes, not self.is_complete) if changes is None else ~changes.inputs

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
            for part in slices(self.num_nodes, _ROWS):
                taken = part.start + np.flatnonzero(~need[part])
                after[taken] = earlier[changes.former[taken]]
        wanted, changed = np.flatnonzero(need), need.copy()
        counts = (self.indptr[wanted + 1] - self.indptr[wanted]).cumsum()
        parts = list(bounded_slices(counts, self.chunk_edges, min(rows, _ROWS)))
        for part in parts:
            some = wanted[part]
            values = compute(some)
            after[some] = values
            if earlier is not None and changes is not None:
                known = changes.former[some] >= 0
                old = earlier[changes.former[some][known]]
                changed[some[known]] = ~rows_equal(values[known], old)
        chunks = self._full_chunks(rows) + self._chunks_like(parts, ~need) if earlier is not None else self._few_rows()
        self._audit(after, chunks, compute)
        return after, changed

    def _few_rows(self) -> list[Array]:
        """Draw nodes as a later pass may take them: a few."""
        draw = np.random.default_rng(self.num_nodes)
        return [draw.choice(self.num_nodes, min(count, self.num_nodes), replace=False) for count in _AUDITED]

    def _full_chunks(self, rows: int) -> list[Array]:
        """Return nodes as a full pass takes them: its last chunk, which is short, and any other."""
        parts = list(bounded_slices(self.indptr[1 : self.num_nodes + 1], self.chunk_edges, min(rows, _ROWS)))
        other = np.random.default_rng(self.num_nodes).integers(len(parts))
        return [np.arange(parts[i].start, parts[i].stop) for i in dict.fromkeys((int(other), len(parts) - 1))]

    def _chunks_like(self, parts: list[slice], taken: Array) -> list[Array]:
        """Draw nodes that were taken over, as many as the largest and the last chunk computed; and a few."""
        nodes, sizes = np.flatnonzero(taken), [part.stop - part.start for part in parts]
        draw = np.random.default_rng(len(nodes))
        counts = dict.fromkeys(min(count, len(nodes)) for count in (*sizes[-1:], max(sizes, default=1), *_AUDITED))
        return [draw.choice(nodes, count, replace=False) for count in counts if count]

    def _audit(self, after: Array, chunks: list[Array], compute: Compute) -> None:
        """Compute chunks once more, of large ones the beginning.

        Raises AuditError where a row differs in a pass that takes rows over; a full one goes on with a warning.
        """
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


def _reader(before: Array | None, features: FeatureSource) -> Compute:
    """Return what reads rows of a layer's input: of the layer before, or numeric features as they are."""
    table = features.feat if before is None else before

    def read(nodes: Array) -> Array:
        rows = take_rows(table, nodes, np.float32)
        assert rows is not None
        return rows.numpy()

    return read
