"""Many graphs end to end: ids within each become ids over all."""

from __future__ import annotations

import numpy as np
from numba import njit

from configs.errors import DataError
from tasks.arrays import Array, offsets
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


class GraphOffsets:
    """Where each graph's nodes and edges begin when all graphs lie end to end."""

    def __init__(self, num_nodes: Array, num_edges: Array) -> None:
        self.nodes, self.edges = offsets(num_nodes), offsets(num_edges)
        self._graph = 0

    def globalise(self, src: Array, dst: Array, first: int, path: object) -> tuple[Array, Array]:
        """Return ids over all graphs. Raises DataError for an id that its graph has not."""
        kind = id_dtype(int(self.nodes[-1]))
        out_src, out_dst = np.empty(len(src), kind), np.empty(len(dst), kind)
        row, side, graph = _globalise(src, dst, first, self._graph, self.nodes, self.edges, out_src, out_dst)
        if row >= 0:
            size = int(self.nodes[graph + 1] - self.nodes[graph])
            value = int((src, dst)[side][row])
            raise DataError(
                f"node id {value} is not in 0..{size - 1}; graph {graph} has {size} nodes",
                path=path,
                row=first + row,
                column=side,
            )
        self._graph = graph
        return out_src, out_dst
