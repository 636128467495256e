"""Local numbers for the nodes of a batch.

`table` int32 (N,) holds base + local number for each node of the present batch, and less than `base` for all others.
The next batch's base lies above all numbers given so far, so that the table is cleared only when int32 runs out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from configs.errors import DataError
from models.kernels.memory import recycled
from models.kernels.simd.prefetch import AHEAD
from models.kernels.simd.vector import prefetch_item

Array = NDArray[Any]
_LAST_BASE = 1 << 30  # the table starts over above it; a batch has room for as many nodes


class Numbering:
    """Local numbers of one batch's nodes at a time. Memory: 4 bytes a node of the graph, as far as batches reach."""

    def __init__(self, num_nodes: int, dtype: Any) -> None:
        """`dtype` is that of ids."""
        self.table = np.zeros(num_nodes + 1, np.int32)  # the last entry is of no node
        self.nodes = np.empty(num_nodes + 1, dtype)  # touched as far as a batch reaches
        self.base = 1
        self.count = 0

    def start(self) -> None:
        """Begin a batch without nodes."""
        self.base += self.count
        self.count = 0
        if self.base > _LAST_BASE:  # after some ten thousand batches
            self.table.fill(0)
            self.base = 1

    def number(self, ids: Array) -> Array:
        """Return local numbers of `ids`, int32 (m,), new nodes at the end."""
        self.check_room(len(ids))
        local = recycled(len(ids), np.int32)
        self.count = relabel(ids, local, self.nodes, self.count, self.table, self.base)
        return local

    def number_all(self, ids: Array) -> tuple[Array, Array]:
        """Begin a batch; return the numbers of `ids` (int64, same shape) and the distinct ids as they first appear."""
        self.start()
        local = self.number(np.ascontiguousarray(ids, self.nodes.dtype).reshape(-1))
        return local.astype(np.int64).reshape(ids.shape), self.nodes[: self.count].copy()

    def check_room(self, count: int) -> None:
        """Raise DataError where so many more ids may be more than a batch can number."""
        if self.count + count >= _LAST_BASE:
            raise DataError(
                f"a batch reaches {self.count + count:,} edges; lower train.loader.batch_size or train.loader.fanout"
            )


@njit(cache=True, nogil=True)
def relabel(ids, local, nodes, num_nodes, table, base):  # type: ignore[no-untyped-def]
    """Give each of `ids` (m,) its local number; return how many nodes there are then.

    New ids are appended to `nodes`, which has `num_nodes` entries before and room for one more than there will be.
    Nothing branches: whether an id is new is as good as random.
    """
    count = np.int32(num_nodes)
    base = np.int32(base)
    for e in range(len(ids)):
        if e + AHEAD < len(ids):
            prefetch_item(table, np.int64(ids[e + AHEAD]))
        v = ids[e]
        number = np.int32(table[v] - base)
        new = number < 0
        number = count if new else number
        table[v] = np.int32(base + number)
        nodes[count] = v
        count = np.int32(count + np.int32(new))
        local[e] = number
    return np.int64(count)
