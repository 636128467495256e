"""How alike near points are: weights of their edges from distances, one number being fitted for each point."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from models.kernels.threads import even_rows, run_rows

_STEPS = 64
_TOLERANCE = 1e-5
_LEAST_WIDTH = 1e-3
"""Share of the mean distance that UMAP's widths have at least."""


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
