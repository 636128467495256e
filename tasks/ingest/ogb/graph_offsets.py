"""Many graphs end to end: ids within each become ids over all."""

from __future__ import annotations

import numpy as np
from numba import njit

from configs.errors import DataError
from tasks.arrays import Array
from tasks.storage.graph_store import id_dtype


@njit(cache=True, nogil=True)
def _globalise(src, dst, first, graph, node_offsets, edge_offsets, out_src, out_dst):  # type: ignore[no-untyped-def]
    """Turn ids within graphs into ids over all; return (first bad row or -1, its column, graph of the last edge)."""
    for i in range(len(src)):
        while first + i >= edge_offsets[graph + 1]:
            graph += 1
        size = node_offsets[graph + 1] - node_offsets[graph]
        if src[i] < 0 or src[i] >= size:
            return i, 0, graph
        if dst[i] < 0 or dst[i] >= size:
            return i, 1, graph
        out_src[i] = src[i] + node_offsets[graph]
        out_dst[i] = dst[i] + node_offsets[graph]
    return -1, 0, graph


def globalise(
    src: Array, dst: Array, first: int, node_offsets: Array, edge_offsets: Array, path: object
) -> tuple[Array, Array]:
    """Return ids over all graphs of edges number `first` and on, (n,) each. Raises DataError for an id of no node.

    node_offsets, edge_offsets: where each graph's nodes and edges begin when all graphs lie end to end.
    """
    kind = id_dtype(int(node_offsets[-1]))
    out_src, out_dst = np.empty(len(src), kind), np.empty(len(dst), kind)
    graph = int(np.searchsorted(edge_offsets, first, side="right")) - 1
    row, side, graph = _globalise(src, dst, first, graph, node_offsets, edge_offsets, out_src, out_dst)
    if row >= 0:
        size = int(node_offsets[graph + 1] - node_offsets[graph])
        raise DataError(
            f"node id {int((src, dst)[side][row])} is not in 0..{size - 1}; graph {graph} has {size} nodes",
            path=path,
            row=first + row,
            column=side,
        )
    return out_src, out_dst
