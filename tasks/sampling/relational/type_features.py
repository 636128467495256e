"""Features of nodes by type, whether types have matrices of their own or share one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from numba import njit
from torch import Tensor

from models.kernels.memory import recycled
from models.kernels.simd.prefetch import AHEAD
from models.kernels.simd.vector import prefetch_item
from tasks.arrays import Array, blocks
from tasks.sampling.neighborhoods.in_edges import frozen
from tasks.storage.graph_store import GraphStore
from tasks.storage.manifests import array_of_type

_CHUNK = 1 << 20


class TypeFeatures:
    """Numeric or categorical features of a typed graph."""

    def __init__(self, store: GraphStore, name: Literal["feat", "feat_cat"]) -> None:
        """Open them."""
        manifest, self._shared = store.manifest, store.get(name)
        self._offsets = manifest.type_offsets
        self._tables = [store.get(array_of_type(name, kind)) for kind in manifest.node_types]
        numeric = name == "feat"
        columns = [manifest.type_columns.get(kind) for kind in manifest.node_types]
        own = [() if one is None else one.numeric if numeric else one.categorical for one in columns]
        self._place = [{column: place for place, column in enumerate(some)} for some in own]
        self._ids: Array | None = None
        if self._shared is None and any(table is not None for table in self._tables):
            ids = store["node_ids"]
            chunks = ((some, np.arange(some.start, some.start + len(ids[some]))) for some in blocks(len(ids), _CHUNK))
            # Where nodes have kept their numbers, ids are 0, 1, 2, ...
            self._ids = None if all(np.array_equal(ids[some], numbers) for some, numbers in chunks) else ids

    def gather(self, kind: int, nodes: Array, columns: Sequence[int], dtype: Any) -> Tensor | None:
        """Return features (n, len(columns)) of nodes of one type; None where there are none.

        Args:
            kind: number of the type.
            nodes: ids (n,) in the graph's numbering.
            columns: of those that the type has, as the graph numbers them.
            dtype: np.float32 or np.int64.
        """
        if not columns:
            return None
        if self._shared is not None:
            return gather_columns(self._shared, nodes, columns, dtype)
        table, place = self._tables[kind], self._place[kind]
        if table is None:
            return None
        rows = (nodes if self._ids is None else self._ids[nodes]) - self._offsets[kind]
        return gather_columns(table, np.ascontiguousarray(rows), [place[column] for column in columns], dtype)


_LINE_NUMBERS = 16  # float32 or int32 of a cache line


def gather_columns(table: Array, rows: Array, columns: Sequence[int], dtype: Any) -> Tensor:
    """Return table[rows][:, columns] as a tensor (n, len(columns)) of `dtype`: np.float32 or np.int64.

    Args:
        table: (N, D), contiguous; of float16 or of what `dtype` is or is converted from.
        rows: integer (n,).
        columns: below D, ascending or not.
        dtype: np.float32 or np.int64.
    """
    out = recycled((len(rows), len(columns)), dtype)
    positions = np.asarray(columns, np.int64)
    if table.dtype == np.float16:  # which numba does not read
        low, high = int(positions.min()), int(positions.max()) + 1
        out[:] = table[rows, low:high][:, positions - low]
    else:
        lines = np.unique(positions // _LINE_NUMBERS) * _LINE_NUMBERS
        _copy(frozen(table).reshape(-1), table.shape[1], frozen(rows), positions, lines, out)
    return torch.from_numpy(out)


@njit(cache=True, nogil=True)
def _copy(table, width, rows, columns, lines, out):  # type: ignore[no-untyped-def]
    for i in range(len(rows)):
        if i + AHEAD < len(rows):
            ahead = np.int64(rows[i + AHEAD]) * width
            for line in lines:
                prefetch_item(table, ahead + line)
        start = np.int64(rows[i]) * width
        for j in range(len(columns)):
            out[i, j] = table[start + columns[j]]
