"""The graph of nearest neighbours: every edge with its reverse, both of one weight."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from configs.errors import DataError
from configs.layout_options import NeighborsConfig
from tasks.arrays import Array
from tasks.layout.neighbors.copies import find_copies
from tasks.layout.neighbors.rows import NeighborLists, SearchedRows, squares
from tasks.layout.neighbors.search import chosen_method, search, torch_threads
from tasks.layout.neighbors.weights import fuzzy_weights, perplexity_weights


@dataclass(frozen=True)
class NeighborGraph:
    """A symmetric graph without self-loops in compressed rows."""

    indptr: NDArray[np.int64]
    """(n + 1,)."""
    indices: Array
    """int32, or int64 where there are very many: (E,), ascending within a row."""
    weight: NDArray[np.float32]
    """(E,), above 0."""
    k: int
    """Neighbours that were looked for."""
    method: str
    recall: float | None
    """Share of the true neighbours found, estimated; None where all were."""
    num_copies: int
    """Rows that repeat others and were not searched themselves."""


def neighbor_graph(vectors: Array, options: NeighborsConfig, seed: int = 0, threads: int = 1) -> NeighborGraph:
    """Return the graph of vectors' nearest neighbours with weights.

    By perplexity (t-SNE, LargeVis) w_ij = (p(j | i) + p(i | j)) / 2n, which add up to 1; fuzzy (UMAP) w_ij = a + b - ab
    of the two directions' weights a and b. k is lowered to n - 1 where it is more.

    Args:
        vectors: numbers (n, d), in memory or mapped; they are not copied whole.
        options: k, metric, method, weights, perplexity.
        seed: of the search by clusters.
        threads: how many work; one finds the same graph always.

    Raises:
        DataError: fewer than two rows, or numbers that cannot be compared (`nearest`).
    """
    options = options.settled("perplexity")
    rows = SearchedRows(vectors, options.metric)
    n = len(rows)
    if n < 2:
        raise DataError(f"there {'is 1 vector' if n else 'are no vectors'}, and neighbours need two; give more rows")
    copies = find_copies(vectors, _searched_copies(options), rows.block)
    if copies.num_left:
        rows = SearchedRows(vectors, options.metric, copies.searched)
    k = min(options.num_neighbors, len(rows) - 1)
    method = chosen_method(len(rows), options.metric, options.method)
    with torch_threads(threads):
        neighbors, recall = search(rows, k, method, seed)
        if copies.num_left:
            neighbors = copies.spread(neighbors)
        indptr, indices, weight = _symmetric(neighbors, options)
    return NeighborGraph(indptr, indices, weight, k, method, recall, copies.num_left)


def _searched_copies(options: NeighborsConfig) -> int:
    """Return how many equal rows are searched: fewer than a point's weight is shared out among, and two at least.

    The more, the nearer copies lie to each other, and the sooner groups of them come apart: of 200,000 copies of 50
    rows 0.74 of the 15 nearest points are copies with half the perplexity, 0.52 with a third (November 2026).
    """
    if options.weights == "perplexity":
        return max(min(options.num_neighbors // 3, int(options.perplexity) // 2), 2)
    return max(options.num_neighbors // 3, 2)


def _symmetric(
    neighbors: NeighborLists, options: NeighborsConfig
) -> tuple[NDArray[np.int64], Array, NDArray[np.float32]]:
    """Return indptr, indices and weights of both directions."""
    import scipy.sparse as sp

    near, far = neighbors
    n, k = near.shape
    if options.weights == "perplexity":
        weight = perplexity_weights(squares(options.metric, far), options.perplexity)
    else:
        weight = fuzzy_weights(np.maximum(far - far[:, :1], 0) if options.metric == "dot" else far)
    index = np.int32 if max(n, 2 * n * k) <= np.iinfo(np.int32).max else np.int64
    one_way = sp.csr_matrix((weight.ravel(), near.ravel().astype(index), np.arange(n + 1, dtype=index) * k), (n, n))
    one_way.sort_indices()
    other_way = one_way.T.tocsr()
    both = one_way + other_way
    if options.weights == "perplexity":
        both.data *= np.float32(0.5 / n)
    else:
        both = both - one_way.multiply(other_way)
    both.eliminate_zeros()
    both.sort_indices()
    indices = both.indices.astype(np.int32 if n <= np.iinfo(np.int32).max else np.int64, copy=False)
    return both.indptr.astype(np.int64), indices, both.data.astype(np.float32, copy=False)
