"""Kernels against plain references on random graphs with isolated nodes, duplicates and self-loops."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from tasks.components.renumbering import permute_rows
from tasks.partition.base import Parts
from tasks.partition.kernels.local_search import rebalance
from tasks.partition.kernels.reorder import order_by_part
from tasks.partition.kernels.undirected import is_simple, unite_rows
from tasks.partition.levels import finest_level
from tests.partition.test_partitioners import csr_of


def random_rows(num_nodes: int, num_edges: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A multigraph's rows, ascending; the last nodes are isolated."""
    rng = np.random.default_rng(seed)
    row, column = rng.integers(0, max(1, num_nodes - 3), (2, num_edges))
    order = np.lexsort((column, row))
    indptr = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=num_nodes))])
    return indptr.astype(np.int64), column[order].astype(np.int32)


@pytest.mark.parametrize(("num_nodes", "num_edges"), [(1, 0), (7, 40), (60, 6000), (301, 900)])
@pytest.mark.parametrize("num_parts", [2, 5, 200])
@pytest.mark.parametrize("wanted", [True, False])
def test_permute_rows(num_nodes: int, num_edges: int, num_parts: int, wanted: bool) -> None:
    indptr, indices = random_rows(num_nodes, num_edges, seed=num_nodes)
    part = np.random.default_rng(1).integers(0, num_parts, num_nodes).astype(np.int32)
    order = order_by_part(part, num_parts, np.dtype(np.int32))
    assert np.array_equal(order.new_to_old, np.argsort(part, kind="stable"))
    assert np.array_equal(order.old_to_new[order.new_to_old], np.arange(num_nodes))
    out, positions = np.empty(num_edges, np.int32), np.empty(num_edges if wanted else 0, np.int64)
    permute_rows(indptr, indices, order.new_to_old, order.old_to_new, part, num_parts, out, positions)
    expected = [np.sort(order.old_to_new[indices[indptr[v] : indptr[v + 1]]]) for v in order.new_to_old]
    assert np.array_equal(out, np.concatenate(expected))
    if wanted:
        assert np.array_equal(np.sort(positions), np.arange(num_edges))
        assert np.array_equal(order.old_to_new[indices[positions]], out)


@pytest.mark.parametrize("seed", range(4))
def test_union_of_both_directions(seed: int) -> None:
    num_nodes = 37
    indptr, indices = random_rows(num_nodes, 150, seed)
    matrix = sp.csr_matrix((np.ones(150), indices, indptr), shape=(num_nodes, num_nodes))
    transposed = matrix.T.tocsr()
    transposed.sort_indices()
    both = ((matrix + transposed) > 0).tolil()
    both.setdiag(False)
    both = both.tocsr()
    both.eliminate_zeros()
    both.sort_indices()
    out = (transposed.indptr.astype(np.int64), transposed.indices.astype(np.int32))
    sizes = np.zeros(num_nodes + 1, np.int64)
    unite_rows(indptr, indices, *out, sizes, np.empty(0, np.int32))
    union_indptr = np.cumsum(sizes)
    union = np.empty(union_indptr[-1], np.int32)
    unite_rows(indptr, indices, *out, union_indptr, union)
    assert np.array_equal(union_indptr, both.indptr)
    assert np.array_equal(union, both.indices)
    assert is_simple(union_indptr, union)
    assert not is_simple(indptr, indices)


def test_rebalance_brings_parts_under_their_limits() -> None:
    rng = np.random.default_rng(3)
    csr = csr_of(*rng.integers(0, 600, (2, 2400)), 600)
    train_idx = np.arange(0, 600, 3)
    level = finest_level(csr, train_idx)
    part = np.zeros(600, np.int32)
    part[:50] = 1
    part[50:60] = 2
    size = np.bincount(part, minlength=3)
    train_size = np.bincount(part[train_idx], minlength=3)
    rebalance(level.graph, Parts(part, level.weight, level.train, size, train_size, 206, 69))
    assert np.array_equal(size, np.bincount(part, minlength=3))
    assert np.array_equal(train_size, np.bincount(part[train_idx], minlength=3))
    assert size.max() <= 206
    assert train_size.max() <= 69
