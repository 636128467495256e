"""Local numbers for the nodes of a batch.

`table` int32 (N,) holds base + local number for each node of the present batch, and less than `base` for all others.
The next batch's base lies above all numbers given so far, so that the table is cleared only when int32 runs out.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from models.kernels.prefetch import AHEAD
from models.kernels.vector import prefetch_item


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
