"""Vectors of rows of typed tables, kept in files; of newer tables only batches that read something new are computed.

A row's vector follows from what is sampled around it as of its moment. Rows of one moment, in the data's order, make
batches of their own, so that rows that come later leave them as they are; and a batch in which all that the model reads
is the same, to the bit, ends in the same bits. So each batch is sampled and its content hashed, and the model runs only
where no kept batch has that hash. It needs no look at the earlier tables, and holds whatever changed.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.kernels.dense.row_products import stable_rows
from models.relational.base import RelationalModel
from models.relational.batch import TypedBatch
from tasks.arrays import blocks
from tasks.inference.kept_layers import AuditError, Told
from tasks.inference.sampled import SampledScores
from tasks.storage.graph_store import Array, GraphStore, create_array

VECTORS, SIZES, HASHES = "vectors.npy", "sizes.npy", "hashes.npy"
_MOST_SEEDS = 1024
_FEW_ROWS = 32
"""Rows of a moment, on average, from which it has batches of its own."""
_AUDITED = 256
"""Rows of batches that are taken over and computed too, at least."""
_HASH_BYTES = 16
_KEY = 20_240_603


class KeptRows:
    """Computes vectors of all rows that are predicted into a file, from those of an earlier graph where there are."""

    def __init__(
        self, store: GraphStore, rows: Array, folder: Path, former: Path | None = None, *, is_complete: bool = False
    ) -> None:
        """Open nothing yet.

        `rows`: int64 (n,), all that are predicted, in the data's order. `folder`: where vectors are kept, or lie
        already (`is_complete`). `former`: where those of an earlier graph lie.
        """
        self.store, self.folder, self.is_complete = store, folder, is_complete
        self.told = Told(rows=len(rows))
        moment = store.get("node_time")
        self.rows = rows if moment is None else rows[np.argsort(np.asarray(moment[rows]), kind="stable")]
        self._moment = None if moment is None else np.asarray(moment[self.rows])
        self._former = _Kept(former) if former is not None and not is_complete else None
        self._place = np.full(store.manifest.num_nodes, -1, np.int64)
        self._place[self.rows] = np.arange(len(self.rows))
        self._vectors: Array | None = None

    def vectors(self, model: RelationalModel, nodes: Array) -> NDArray[np.float32]:
        """Return vectors of rows, int64 (n,), float32 (n, vector_dim); computed once. Inside of `evaluating`.

        Raises AuditError.
        """
        if self._vectors is None:
            started = time.perf_counter()
            self._vectors = np.load(self.folder / VECTORS, mmap_mode="r") if self.is_complete else self._run(model)
            self.told.computed = self.told.computed or [0]
            self.told.seconds += time.perf_counter() - started
        return self._vectors[self._place[nodes]]

    def _run(self, model: RelationalModel) -> Array:
        vectors = create_array(self.folder / VECTORS, (len(self.rows), model.vector_dim), np.float32)
        sampled, parts = SampledScores(self.store, model), list(self._parts())
        hashes, computed = [], 0
        no_target = torch.empty(0)
        for part in parts:
            batch = sampled.neighborhoods.batch(np.asarray(self.rows[part], np.int64), _KEY, no_target)
            hashes.append(content_hash(batch))
            taken = None if self._former is None else self._former.find(hashes[-1])
            if taken is not None and self.told.audited >= _AUDITED:
                vectors[part] = taken
                continue
            assert batch.rows is not None
            with stable_rows():  # libraries' products may go by where in memory a batch lies
                values = np.ascontiguousarray(model.represent(batch)[batch.rows].float().numpy())
            if taken is None:
                computed += len(values)
            elif values.tobytes() != taken.tobytes():
                raise AuditError(f"a batch of {len(values):,} rows that was computed too differs")
            else:
                self.told.audited += len(values)
            vectors[part] = values
        self.told.computed = [computed]
        np.save(self.folder / SIZES, np.array([part.stop - part.start for part in parts], np.int64))
        np.save(self.folder / HASHES, np.frombuffer(b"".join(hashes), np.uint8).reshape(-1, _HASH_BYTES))
        return vectors

    def _parts(self) -> Iterator[slice]:
        """Yield batches: runs of rows of one moment, or of many moments where each has few rows."""
        ends = [len(self.rows)]
        if self._moment is not None:
            changes = np.flatnonzero(np.diff(self._moment)) + 1
            if len(changes) * _FEW_ROWS < len(self.rows):
                ends = [*changes.tolist(), len(self.rows)]
        first = 0
        for end in ends:
            for part in blocks(end - first, _MOST_SEEDS):
                yield slice(first + part.start, first + part.stop)
            first = end


class _Kept:
    """What was kept of an earlier graph, by the hash of each batch."""

    def __init__(self, folder: Path) -> None:
        self._vectors = np.load(folder / VECTORS, mmap_mode="r")
        offsets = np.concatenate([[0], np.cumsum(np.load(folder / SIZES))])
        hashes = np.load(folder / HASHES)
        self._places = {one.tobytes(): slice(int(offsets[i]), int(offsets[i + 1])) for i, one in enumerate(hashes)}

    def find(self, digest: bytes) -> Array | None:
        """Return the vectors of the batch with a hash; None: there was none."""
        place = self._places.get(digest)
        return None if place is None else np.ascontiguousarray(self._vectors[place])


def content_hash(batch: TypedBatch) -> bytes:
    """Return a hash of all that a model reads of a batch, and of how many threads compute.

    Numbers of nodes in the graph have no part in it: models read their rows, not them.
    """
    digest = hashlib.blake2b(digest_size=_HASH_BYTES)
    digest.update(f"{torch.get_num_threads()} ".encode())
    _add(digest, batch)
    return digest.digest()


def _add(digest: Any, value: Any) -> None:
    if isinstance(value, Tensor):
        array = value.detach().contiguous().numpy()
        digest.update(f"{array.dtype} {array.shape} ".encode() + array.tobytes())
    elif is_dataclass(value) and not isinstance(value, type):
        for one in fields(value):
            if one.init and one.name != "node_ids":
                digest.update(f"{one.name} ".encode())
                _add(digest, getattr(value, one.name))
    elif isinstance(value, list | tuple):
        digest.update(f"{len(value)} ".encode())
        for item in value:
            _add(digest, item)
    else:
        digest.update(f"{value!r} ".encode())
