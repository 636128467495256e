"""LABOR-0: layer-wise sampling with random numbers that destinations share (arXiv:2210.13339, section 3.2).

Source t draws one number r_t in a layer, for all destinations at once, and is taken by a destination of in-degree d
where r_t <= min(1, fanout / d). Each destination takes min(fanout, d) neighbours in expectation, as many as it does
with uniform sampling, but destinations that share neighbours take the same ones: a batch reaches fewer nodes.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from models.kernels.simd.prefetch import AHEAD, NODES_AHEAD, prefetch_run
from models.kernels.simd.vector import prefetch_item
from tasks.sampling.neighborhoods.fast_random import STEP, output

_TWO_64 = 18446744073709551616.0


@njit(cache=True, nogil=True)
def draw_labor(indptr, indices, first, nodes, fanout, key, counts, degree, positions, ids):  # type: ignore[no-untyped-def]
    """Take each in-edge of a node with probability min(1, fanout / in-degree), by its source's number.

    Writes the source ids (E,) too, since it reads all of a node's in any case. `positions` and `ids` have room for one
    entry more than all in-edges of the nodes.
    """
    key = np.uint64(key)
    w = np.int64(0)
    counts[0] = 0
    for i in range(len(nodes)):
        if i + AHEAD < len(nodes):
            prefetch_item(indptr, np.int64(nodes[i + AHEAD]) - first)
        if i + NODES_AHEAD < len(nodes):
            at = nodes[i + NODES_AHEAD] - first
            prefetch_run(indices, indptr[at], indptr[at + 1])
        at = nodes[i] - first
        low, high = indptr[at], indptr[at + 1]
        degree[i] = high - low
        if high - low <= fanout:
            for position in range(low, high):
                positions[w], ids[w] = position, indices[position]
                w += 1
        else:
            limit = np.uint64(_TWO_64 * (fanout / (high - low)))
            for position in range(low, high):
                # Written in any case and kept or overwritten: a branch on a random number is mispredicted.
                source = indices[position]
                positions[w], ids[w] = position, source
                w += np.int64(output(key + np.uint64(source) * STEP) < limit)
        counts[i + 1] = w
