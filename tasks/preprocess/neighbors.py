"""Edges between nearest neighbours, for data that has none of its own."""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np

from configs.errors import DataError, RecipeError
from configs.layout_options import NeighborsConfig
from tasks.sizes import need_memory
from tasks.stage import StageContext
from tasks.storage.graph_store import ArrayWriter
from tasks.transpose import transpose

_BYTES_A_NEIGHBOR = 48
"""Ids, distances and weights of both directions, and what puts them in order."""
_SLOW_PRODUCTS = 50_000


def write_neighbors(
    context: StageContext, writer: ArrayWriter, options: NeighborsConfig, workers: int, num_edges: int
) -> dict[str, Any]:
    """Write the adjacency and weights of the graph of the features' nearest neighbours, in place of a graph of no edge.

    `workers`: threads, 0 for one a core; `num_edges`: those of the data set's own. Returns `num_edges`, and for the
    report `k`, `metric`, `weights`, `method`, `recall`, `copies`.

    Raises:
        DataError: too few rows, or numbers that cannot be compared.
        RecipeError: the data set has edges, or no numeric features.
    """
    from tasks.layout.neighbors.graph import neighbor_graph

    if num_edges:
        raise RecipeError(
            f"preprocess.neighbors: the data set has {num_edges:,} edges of its own; leave neighbors out, or give the "
            "vectors alone (dataset.name=vectors)"
        )
    if "feat" not in writer.entries:
        raise RecipeError("preprocess.neighbors: nodes have no numeric features to compare; leave it out")
    vectors = writer.read("feat")
    num_rows = len(vectors)
    k = min(options.num_neighbors, max(num_rows - 1, 0))
    if 0 < k < options.num_neighbors:
        context.message(f"{num_rows:,} vectors: k is {k}, not {options.num_neighbors}")
    need_memory(num_rows * k * _BYTES_A_NEIGHBOR, f"{k} neighbours of {num_rows:,} vectors", "lower neighbors.k")
    if options.metric == "dot" and num_rows > _SLOW_PRODUCTS:
        context.warn(f"neighbors.metric=dot compares all {num_rows:,} vectors with all; metric=cosine is faster")
    begin = time.perf_counter()
    try:
        graph = neighbor_graph(vectors, options, options.seed, workers or os.cpu_count() or 1)
    except DataError as error:
        raise DataError(f"preprocess.neighbors, of the features that dataset gives: {error}") from error
    seconds = time.perf_counter() - begin
    writer.write("csc_indptr", graph.indptr)
    writer.write("csc_indices", graph.indices)
    writer.write("edge_weight", graph.weight)
    eids = np.asarray(writer.create("csr_eids", (len(graph.indices),), np.int64))
    transpose(graph.indptr, graph.indices, graph.indptr[:-1].copy(), np.empty(0, graph.indices.dtype), eids)
    share = "all" if graph.recall is None else f"about {graph.recall:.0%}"
    copies = f", {graph.num_copies:,} copies of others beside" if graph.num_copies else ""
    context.message(
        f"{graph.k} neighbours of each vector by {options.metric}, {share} of the nearest ({graph.method}, "
        f"{seconds:.1f} s{copies}); {len(graph.indices):,} edges"
    )
    return {
        "num_edges": len(graph.indices),
        "k": graph.k,
        "metric": options.metric,
        "weights": options.weights,
        "method": graph.method,
        "recall": graph.recall,
        "copies": graph.num_copies,
    }
