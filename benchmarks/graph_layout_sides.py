"""One side of benchmarks/graph_layouts.py, in a process of its own.

    python -m benchmarks.graph_layout_sides SIDE DIR PASSES

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
_CHUNK, _NEGATIVES = 1 << 14, 5
_RATE = 0.3


def graphmill(indptr: Array, indices: Array, passes: int) -> Array:
    """A start by pivots, then LargeVis' steps with forces that reach far.

    This is the one place to call the recipe's own functions from. Edges are drawn by 1 / sqrt(degrees): without that a
    hub's edges are all that is pulled.
    """
    from models.kernels.layout.move_points import Points, move_points
    from models.kernels.layout.objectives import Objective
    from models.layout.reach import forces_of
    from tasks.layout.pivots import coarse_start
    from tasks.sampling.walks.alias import alias_table, draw_many

    n, degree = len(indptr) - 1, np.diff(indptr).astype(np.float64)
    start, forces = coarse_start(indptr, indices), forces_of(n, _NEGATIVES, 400)
    points, objective = Points.zeros(n, 2), Objective("largevis", gamma=forces.gamma, epsilon=forces.epsilon)
    points.rows[:] = start * forces.edge_length
    sources = np.repeat(np.arange(n, dtype=np.int32), np.diff(indptr))
    edges, noise = alias_table((degree[sources] * degree[indices]) ** -0.5), alias_table(np.ones(n))
    drawn, others = np.empty(_CHUNK, np.int64), np.empty((_CHUNK, _NEGATIVES), np.int32)
    state, mask, count = 1, (1 << 64) - 1, passes * len(indices) // 2
    for low in range(0, count, _CHUNK):
        state = int(draw_many(edges, np.uint64(state), drawn)) & mask
        state = int(draw_many(noise, np.uint64(state), others.reshape(-1))) & mask
        rate = _RATE * (1 - low / count)
        move_points(points, points, sources[drawn], indices[drawn], others, objective, rate=rate)
    return points.rows


def pairs_of(indptr: Array, indices: Array) -> Array:
    """Return each edge once: nodes (m, 2)."""
    sources = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    return np.stack([sources, indices], axis=1)[sources < indices]


def sfdp(indptr: Array, indices: Array, passes: int) -> Array:
    """Graphviz' sfdp with its defaults, without removing overlaps, which its wheel cannot."""
    from pygraphviz import AGraph

    graph = AGraph(overlap="true", start="1")
    graph.add_nodes_from(range(len(indptr) - 1))
    graph.add_edges_from(pairs_of(indptr, indices).tolist())
    _clock.append(time.process_time())
    graph.layout("sfdp")
    _clock.append(time.process_time())
    return np.array([[float(x) for x in node.attr["pos"].split(",")] for node in graph.nodes_iter()])


def forceatlas2(indptr: Array, indices: Array, passes: int) -> Array:
    """ForceAtlas2 with Barnes and Hut's approximation, 500 passes: a Python package's compiled loops."""
    import scipy.sparse as sp
    from fa2_modified import ForceAtlas2

    n = len(indptr) - 1
    matrix = sp.csr_matrix((np.ones(len(indices)), indices, indptr), (n, n))
    return np.array(ForceAtlas2(verbose=False).forceatlas2(matrix, pos=None, iterations=500))


def drl(indptr: Array, indices: Array, passes: int) -> Array:
    """DrL with its defaults, as igraph has it."""
    import igraph

    return np.array(igraph.Graph(len(indptr) - 1, pairs_of(indptr, indices)).layout_drl().coords)


SIDES: dict[str, Callable[[Array, Array, int], Array]] = {
    "graphmill": graphmill,
    "sfdp": sfdp,
    "ForceAtlas2": forceatlas2,
    "DrL": drl,
}


def main() -> None:
    """Lay out a small ring where there is something to compile, then the graph."""
    side, folder, passes = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    indptr, indices = np.load(folder / "indptr.npy"), np.load(folder / "indices.npy")
    if side == "graphmill":
        nodes = np.arange(100)
        ring = np.stack([nodes - 1, nodes + 1], axis=1).reshape(-1) % 100
        graphmill(np.arange(0, 201, 2), ring.astype(np.int32), 10)
    begin = time.process_time()
    coordinates = SIDES[side](indptr, indices, passes)
    begin, end = _clock or (begin, time.process_time())
    np.save(folder / "out.npy", np.asarray(coordinates, np.float32))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"cpu_seconds": end - begin, "peak_mb": peak}))


if __name__ == "__main__":
    main()
