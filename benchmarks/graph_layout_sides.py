"""One side of benchmarks/graph_layouts.py, in a process of its own.

    python -m benchmarks.graph_layout_sides SIDE DIR

Reads indptr.npy and indices.npy of the folder and writes out.npy, coordinates (n, 2). The last line of its output is
JSON: CPU seconds and seconds of the layout, and the peak memory.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tasks.arrays import Array

_clock: list[float] = []


def graphmill(indptr: Array, indices: Array) -> Array:
    """LargeVis with its defaults for graphs, from a start by pivots: as the recipe `graph-layout` has them."""
    from models.layout.configs import LargeVisConfig
    from tasks.layout.edge_list import EdgeList
    from tasks.layout.start import coarse_start
    from tasks.train.layout.engine import lay_out

    edges = EdgeList(indptr, indices, of_graph=True)
    return lay_out(edges, LargeVisConfig(name="largevis"), coarse_start(indptr, indices))


def pairs_of(indptr: Array, indices: Array) -> Array:
    """Return each edge once: nodes (m, 2)."""
    sources = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    return np.stack([sources, indices], axis=1)[sources < indices]


def sfdp(indptr: Array, indices: Array) -> Array:
    """Graphviz' sfdp with its defaults, without removing overlaps, which its wheel cannot."""
    from pygraphviz import AGraph

    graph = AGraph(overlap="true", start="1")
    graph.add_nodes_from(range(len(indptr) - 1))
    graph.add_edges_from(pairs_of(indptr, indices).tolist())
    _clock.append(time.process_time())
    graph.layout("sfdp")
    _clock.append(time.process_time())
    return np.array([[float(x) for x in node.attr["pos"].split(",")] for node in graph.nodes_iter()])


def forceatlas2(indptr: Array, indices: Array) -> Array:
    """ForceAtlas2 with Barnes and Hut's approximation, 500 passes: a Python package's compiled loops."""
    import scipy.sparse as sp
    from fa2_modified import ForceAtlas2

    n = len(indptr) - 1
    matrix = sp.csr_matrix((np.ones(len(indices)), indices, indptr), (n, n))
    return np.array(ForceAtlas2(verbose=False).forceatlas2(matrix, pos=None, iterations=500))


def drl(indptr: Array, indices: Array) -> Array:
    """DrL with its defaults, as igraph has it."""
    import igraph

    return np.array(igraph.Graph(len(indptr) - 1, pairs_of(indptr, indices)).layout_drl().coords)


SIDES: dict[str, Callable[[Array, Array], Array]] = {
    "graphmill": graphmill,
    "sfdp": sfdp,
    "ForceAtlas2": forceatlas2,
    "DrL": drl,
}


def main() -> None:
    """Lay out a small ring where there is something to compile, then the graph."""
    side, folder = sys.argv[1], Path(sys.argv[2])
    indptr, indices = np.load(folder / "indptr.npy"), np.load(folder / "indices.npy")
    if side == "graphmill":
        nodes = np.arange(100)
        ring = np.stack([nodes - 1, nodes + 1], axis=1).reshape(-1) % 100
        graphmill(np.arange(0, 201, 2), ring.astype(np.int32))
    begin = time.process_time()
    coordinates = SIDES[side](indptr, indices)
    begin, end = _clock or (begin, time.process_time())
    np.save(folder / "out.npy", np.asarray(coordinates, np.float32))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"cpu_seconds": end - begin, "peak_mb": peak}))


if __name__ == "__main__":
    main()
