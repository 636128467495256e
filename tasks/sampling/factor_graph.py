"""A graph as factorisations read it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from configs.errors import DataError
from models.kernels.sparse.adjacency import Adjacency
from models.vectors.base import FactorGraph
from tasks.arrays import Array
from tasks.sampling.neighborhoods.in_edges import frozen
from tasks.sampling.neighborhoods.neighbors import derive_key
from tasks.sampling.walks.random_walks import Walks, expected_pairs, out_weights, walk_pairs

_PAIRS = 1
_PAIRS_AT_A_TIME = 1 << 24
_LEAST_WEIGHT = np.float32(1e-30)


def factor_graph(arrays: Any, *, symmetric: bool, seed: int, weighted: bool) -> FactorGraph:
    """Return what factorisations read.

    Args:
        arrays: of the graph by name: `csr_indptr`, `csr_indices`, and `edge_weight` with `csr_eids` where it has some.
        symmetric: whether every edge is there in both directions.
        seed: of pairs that are drawn.
        weighted: whether edges count by their weights, where the graph has some.

    Raises DataError: weights that say nothing.
    """
    indptr, indices = frozen(arrays["csr_indptr"]), frozen(arrays["csr_indices"])
    weight = _in_units_of_their_mean(out_weights(arrays, symmetric=symmetric)) if weighted else None
    rows = Adjacency(_tensor(indptr), _tensor(indices), len(indptr) - 1, symmetric=symmetric)

    def pairs(length: int, window: int, count: float) -> Iterator[tuple[Array, Array]]:
        key = derive_key(seed, _PAIRS)
        walks = Walks(indptr, indices, key=key, length=length, by_degree=True, weight=weight)
        each = expected_pairs(length, window, forward=False, shrink=False)
        total, at_a_time = int(np.ceil(count / each)), max(1, int(_PAIRS_AT_A_TIME / each))
        for first in range(0, total, at_a_time):
            tokens = np.empty((min(at_a_time, total - first), length), indices.dtype)
            walks.fill(first, tokens)
            yield walk_pairs(tokens, window, forward=False, shrink=False, key=key + 2, first=first)

    return FactorGraph(rows, None if weight is None else _tensor(np.asarray(weight)), pairs)


def _in_units_of_their_mean(weight: Array | None) -> Array | None:
    """Return weights with a mean of 1: only what they are to each other counts, and sums of any others may overflow.

    Raises DataError: one is below 0 or no number, or all are 0.
    """
    if weight is None or not len(weight):
        return weight
    given = np.asarray(weight)
    way_out = "mend them, or read none with weighted=false (an option of the model)"
    if not np.isfinite(given).all() or given.min() < 0:
        raise DataError(f"edge_weight holds numbers below 0, infinite ones or NaN; {way_out}")
    mean = given.mean(dtype=np.float64)
    if mean == 0:
        raise DataError(f"edge_weight: all weights are 0, and edges of weight 0 say nothing; {way_out}")
    scaled = np.empty(len(given), np.float32)
    np.divide(given, mean, out=scaled, casting="same_kind")
    # Far below the mean a weight would become 0, and a node that has no others would lose its edges.
    return np.maximum(scaled, _LEAST_WEIGHT, out=scaled, where=given > 0)


def _tensor(array: Array) -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)
