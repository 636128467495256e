"""The graph of nearest neighbours: every edge with its reverse, both of one weight.

How alike near points are follows from distances, one number being fitted for each point.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from configs.errors import DataError
from configs.layout_options import NeighborsConfig
from models.kernels.threads import even_rows, run_rows
from tasks.arrays import Array
from tasks.layout.neighbors.copies import find_copies
from tasks.layout.neighbors.rows import NeighborLists, SearchedRows, squares
from tasks.layout.neighbors.search import chosen_method, search, torch_threads

_STEPS = 64
_TOLERANCE = 1e-5
_LEAST_WIDTH = 1e-3
"""Share of the mean distance that UMAP's widths have at least."""


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


def perplexity_weights(squares: NDArray[np.float32], perplexity: float) -> NDArray[np.float32]:
    """Return p(j | i) = exp(-b_i s_ij) / sum_j exp(-b_i s_ij), with b_i so that its entropy is log(perplexity).

    van der Maaten and Hinton: Visualizing data using t-SNE, JMLR 9, 2008, section 2; by bisection.

    Args:
        squares: squared distances of each point's neighbours, float32 (n, k); a constant for a point changes nothing.
        perplexity: above 0; from k on, or where too many are equally near, entropy comes as near as it can.

    Returns:
        float32 (n, k); each row adds up to 1.
    """
    weights = np.empty(squares.shape, np.float32)
    run_rows(_by_perplexity, even_rows(len(squares)), squares, np.log(perplexity), weights)
    return weights


def fuzzy_weights(distances: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return exp(-max(0, d_ij - r_i) / s_i): r_i the least distance above 0, s_i so that they add up to log2(k + 1).

    McInnes, Healy and Melville: UMAP, arXiv:1802.03426, algorithm 3; as in their program a point counts among its own
    neighbours there, and s_i is at least a thousandth of the mean distance.

    Args:
        distances: of each point's neighbours, the nearest first, none below 0: float32 (n, k).

    Returns:
        float32 (n, k), at most 1.
    """
    weights = np.empty(distances.shape, np.float32)
    mean = float(distances.mean(dtype=np.float64)) if distances.size else 0.0
    k = distances.shape[1]
    run_rows(_by_local_distance, even_rows(len(distances)), distances, mean * k / (k + 1), np.log2(k + 1), weights)
    return weights


@njit(cache=True, nogil=True)
def _by_perplexity(first, end, squares, entropy, weights):  # type: ignore[no-untyped-def]
    k = squares.shape[1]
    for i in range(first, end):
        least, total = np.float64(squares[i].min()), 0.0
        for j in range(k):
            total += squares[i, j] - least
        low, high = 0.0, np.inf
        beta = k / total if total > 0 else 0.0  # all equally near: all weigh the same
        for _ in range(_STEPS):
            norm, moment = 0.0, 0.0
            for j in range(k):
                s = squares[i, j] - least
                p = np.exp(-beta * s)
                norm += p
                moment += p * s
            excess = np.log(norm) + beta * moment / norm - entropy
            if abs(excess) < _TOLERANCE or beta == 0.0:
                break
            if excess > 0:
                low = beta
                beta = 2 * beta if high == np.inf else (low + high) / 2
            else:
                high = beta
                beta = (low + high) / 2
        norm = 0.0
        for j in range(k):
            norm += np.exp(-beta * (squares[i, j] - least))
        for j in range(k):
            weights[i, j] = np.exp(-beta * (squares[i, j] - least)) / norm


@njit(cache=True, nogil=True)
def _by_local_distance(first, end, distances, mean_of_all, target, weights):  # type: ignore[no-untyped-def]
    k = distances.shape[1]
    for i in range(first, end):
        rho, mean = 0.0, 0.0
        for j in range(k):
            mean += distances[i, j]
            if rho == 0.0:
                rho = np.float64(distances[i, j])
        mean /= k + 1
        low, high, sigma = 0.0, np.inf, 1.0
        for _ in range(_STEPS):
            total = 0.0
            for j in range(k):
                beyond = distances[i, j] - rho
                total += np.exp(-beyond / sigma) if beyond > 0 else 1.0
            if abs(total - target) < _TOLERANCE:
                break
            if total > target:
                high = sigma
                sigma = (low + high) / 2
            else:
                low = sigma
                sigma = 2 * sigma if high == np.inf else (low + high) / 2
        sigma = max(sigma, _LEAST_WIDTH * (mean if rho > 0 else mean_of_all))
        for j in range(k):
            beyond = distances[i, j] - rho
            weights[i, j] = np.exp(-beyond / sigma) if beyond > 0 and sigma > 0 else 1.0
