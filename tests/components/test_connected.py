"""Connected components against scipy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.csgraph import connected_components as reference

from tasks.components.connected import connected_components


def check(num_nodes: int, src: np.ndarray, dst: np.ndarray, symmetric: bool) -> None:
    src, dst = src.astype(np.int32), dst.astype(np.int32)
    if symmetric:
        src, dst = np.concatenate([src, dst]), np.concatenate([dst, src])
    matrix = sp.csr_matrix((np.ones(len(src)), (src, dst)), shape=(num_nodes, num_nodes))
    rows = matrix.T.tocsr()
    count, component = connected_components(rows.indptr.astype(np.int64), rows.indices)
    expected_count, expected = reference(matrix, directed=True, connection="weak")
    assert count == expected_count
    np.testing.assert_array_equal(component, expected)  # both number components by their smallest node
    assert component.dtype == np.int32


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize(("num_nodes", "num_edges"), [(1, 0), (1, 3), (2, 1), (50, 20), (400, 380), (3000, 3100)])
def test_random_graphs(num_nodes: int, num_edges: int, symmetric: bool) -> None:
    rng = np.random.default_rng(num_nodes + num_edges)
    for _ in range(10):
        src, dst = rng.integers(0, num_nodes, (2, num_edges))
        check(num_nodes, src, dst, symmetric)


@pytest.mark.parametrize("symmetric", [True, False])
def test_hard_shapes(symmetric: bool) -> None:
    """Long paths, stars, edges into a large component from smaller and larger ids."""
    n = 5000
    path = np.arange(n - 1)
    shuffled = np.random.default_rng(0).permutation(n)
    check(n, path, path + 1, symmetric)
    check(n, path + 1, path, symmetric)
    check(n, shuffled[:-1], shuffled[1:], symmetric)
    check(n, np.zeros(n - 1, np.int64), path + 1, symmetric)
    check(n, np.full(n - 1, n - 1), path, symmetric)
    # A clique, and chains that touch it by one late edge each.
    a, b = np.triu_indices(60, 1)
    tails = np.arange(60, 600)
    check(700, np.concatenate([a, tails, [599]]), np.concatenate([b, tails + 1, [59]]), symmetric)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_small_graph(data: st.DataObject) -> None:
    num_nodes = data.draw(st.integers(1, 12))
    ends = st.integers(0, num_nodes - 1)
    edges = np.array(data.draw(st.lists(st.tuples(ends, ends), max_size=20)), np.int64).reshape(-1, 2)
    check(num_nodes, edges[:, 0], edges[:, 1], data.draw(st.booleans()))
