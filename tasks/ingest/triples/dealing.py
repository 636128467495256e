"""Kernels over all triples: which repeat, and which may leave training.

Memory: 4 bytes a slot of a table that is at most half full (8 beyond 2^31 triples), and 16 bytes an entity.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tasks.arrays import Array
from tasks.counter_random import mix

ONCE, IN_SPLIT, IN_EARLIER = 0, 1, 2
"""What `find_repeated` says of a triple: it is new, stands in its split already, or in an earlier one."""
TRAIN, DROPPED = 0, -1
"""Codes of splits beside 1 (valid) and 2 (test)."""


def find_repeated(src: Array, relation: Array, dst: Array, owner: Array, order: Array | None) -> Array:
    """Return `ONCE`, `IN_SPLIT` or `IN_EARLIER` for each triple, uint8 (n,).

    Args:
        src, relation, dst: numbers, (n,) each.
        owner: split of each triple, int8 (n,), not descending along `order`.
        order: which triple comes first, (n,); None: as they stand.
    """
    count = len(src)
    kind = np.int32 if count < 2**31 else np.int64
    table = np.full(1 << max(4, (2 * count - 1).bit_length()), -1, kind)
    out = np.empty(count, np.uint8)
    walk = np.empty(0, np.int64) if order is None else order
    _find_repeated(src, relation, dst, owner, walk, table, out)
    return out


@njit(cache=True, nogil=True)
def _find_repeated(src, relation, dst, owner, order, table, out):  # type: ignore[no-untyped-def]
    mask = np.uint64(len(table) - 1)
    for k in range(len(src)):
        i = order[k] if len(order) else k
        key = mix(mix(np.uint64(src[i])) ^ np.uint64(dst[i])) + np.uint64(relation[i])
        slot = mix(key) & mask
        while True:
            j = table[slot]
            if j < 0 or (src[j] == src[i] and dst[j] == dst[i] and relation[j] == relation[i]):
                break
            slot = (slot + np.uint64(1)) & mask
        if j < 0:
            table[slot] = i
            out[i] = 0
        else:
            out[i] = 1 if owner[j] == owner[i] else 2


@njit(cache=True, nogil=True)
def hold_out(src, relation, dst, order, counts, owner, entities, relations):  # type: ignore[no-untyped-def]
    """Move triples from training to the others, in an order, where training shows their ends and relation without them.

    Args:
        src, relation, dst: numbers, (n,) each.
        order: the triples to try, (m,).
        counts: how many validation and test should have.
        owner: split of each triple, int8 (n,), written.
        entities, relations: how many training triples have each, int64, written; a loop counts twice.

    Returns:
        How many were held out, and how many had to stay.
    """
    taken = stayed = 0
    for i in order:
        if taken == counts[0] + counts[1]:
            break
        u, v, r = src[i], dst[i], relation[i]
        alone = entities[u] <= 2 if u == v else entities[u] <= 1 or entities[v] <= 1
        if alone or relations[r] <= 1:
            stayed += 1
            continue
        entities[u] -= 1
        entities[v] -= 1
        relations[r] -= 1
        owner[i] = 1 if taken < counts[0] else 2
        taken += 1
    return taken, stayed
