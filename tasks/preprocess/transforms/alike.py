"""Nodes with much the same features, found by comparing all pairs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from configs.errors import RecipeError
from tasks.storage.graph_store import id_dtype

Array = NDArray[Any]

# All pairs of 94 k nodes with 130 features take about a minute on one core (Zen 5, November 2026), ten times the nodes
# a hundred times that.
_MOST_NODES = 400_000
_BLOCK_ROWS, _BLOCK_COLUMNS = 256, 1 << 15


def check_alike(num_nodes: int, feature_dim: int) -> None:
    """Raise RecipeError where nodes have nothing to compare, or are too many."""
    if not feature_dim:
        raise RecipeError(
            "preprocess.transforms: hops' step `like` compares features, and there are none; leave it out"
        )
    if num_nodes > _MOST_NODES:
        raise RecipeError(
            f"preprocess.transforms: hops' step `like` compares all pairs of {num_nodes:,} nodes, and is meant for "
            f"{_MOST_NODES:,} at most; remove it"
        )


def find_alike(x: Array, count: int, least: float) -> tuple[Array, Array]:
    """Join each node with those that are most like it, both ways.

    Args:
        x: float32 (N, D).
        count: nodes that each one finds at most.
        least: least cosine of two rows, the columns' means taken off.

    Returns:
        indptr int64 (N + 1,) and indices id (E,), ascending within a node. Memory: two copies of x and 32 MB.
    """
    rows = x - x.mean(0, dtype=np.float64).astype(np.float32)
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    num_nodes = len(rows)
    best = np.full((num_nodes, count), least, np.float32)
    found = np.full((num_nodes, count), -1, np.int64)
    for first in range(0, num_nodes, _BLOCK_ROWS):
        part = slice(first, min(first + _BLOCK_ROWS, num_nodes))
        for other in range(0, num_nodes, _BLOCK_COLUMNS):
            cosines = rows[part] @ rows[other : other + _BLOCK_COLUMNS].T
            keep_best(cosines, first, other, best[part], found[part])
    ends = np.nonzero(found >= 0)[0], found[found >= 0]
    keys = np.unique(np.concatenate([ends[0] * num_nodes + ends[1], ends[1] * num_nodes + ends[0]]))
    indptr = np.zeros(num_nodes + 1, np.int64)
    np.cumsum(np.bincount(keys // num_nodes, minlength=num_nodes), out=indptr[1:])
    return indptr, (keys % num_nodes).astype(id_dtype(num_nodes))


@njit(cache=True, nogil=True)
def keep_best(cosines: Array, first_row: int, first_column: int, best: Array, found: Array) -> None:
    """Keep the best columns of each row so far, best first; of equal ones the first.

    Args:
        cosines: float32 (n, m), of nodes from first_row on with nodes from first_column on.
        first_row: see cosines.
        first_column: see cosines.
        best: float32 (n, K), changed: cosines of those found; at first the least that counts.
        found: int64 (n, K), changed: which they are, -1 for none.
    """
    last = best.shape[1] - 1
    for i in range(len(cosines)):
        bar = best[i, last]
        for j in range(cosines.shape[1]):
            value = cosines[i, j]
            if value < bar or (value == bar and found[i, last] >= 0) or first_row + i == first_column + j:
                continue
            place = last
            while place > 0 and (found[i, place - 1] < 0 or best[i, place - 1] < value):
                best[i, place], found[i, place] = best[i, place - 1], found[i, place - 1]
                place -= 1
            best[i, place], found[i, place] = value, first_column + j
            bar = best[i, last]
