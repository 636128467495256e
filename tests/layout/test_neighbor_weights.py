"""Weights of edges to near points."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import brentq
from sklearn.manifold._t_sne import _joint_probabilities_nn

from configs.layout_options import NeighborsConfig
from tasks.layout.neighbors.graph import neighbor_graph
from tasks.layout.neighbors.rows import SearchedRows
from tasks.layout.neighbors.search import search
from tasks.layout.neighbors.weights import fuzzy_weights, perplexity_weights


def _squares(n: int, k: int, seed: int = 0) -> np.ndarray:
    return np.sort(np.random.default_rng(seed).random((n, k)) * 50, axis=1).astype(np.float32)


@pytest.mark.parametrize(("n", "k", "perplexity"), [(1, 7, 3), (37, 20, 5.5), (5, 90, 30)])
def test_entropy_of_the_weights_is_that_of_the_perplexity(n: int, k: int, perplexity: float) -> None:
    squares = _squares(n, k).astype(np.float64)

    def reference(row: np.ndarray) -> np.ndarray:
        def p(log_beta: float) -> np.ndarray:
            weights = np.exp(-np.exp(log_beta) * (row - row[0]))
            return weights / weights.sum()

        def excess(log_beta: float) -> float:
            found = np.maximum(p(log_beta), 1e-300)
            return float(-(found * np.log(found)).sum() - np.log(perplexity))

        return p(brentq(excess, -20, 20, xtol=1e-10))

    expected = np.array([reference(row) for row in squares])
    np.testing.assert_allclose(
        perplexity_weights(squares.astype(np.float32), perplexity), expected, rtol=2e-3, atol=1e-6
    )


def test_equal_distances_and_high_perplexities_weigh_all_the_same() -> None:
    np.testing.assert_allclose(perplexity_weights(np.full((2, 5), 3, np.float32), 2), 0.2)
    np.testing.assert_allclose(perplexity_weights(np.zeros((2, 5), np.float32), 2), 0.2)
    np.testing.assert_allclose(perplexity_weights(_squares(3, 5), 30), 0.2, rtol=1e-4)


def test_graph_by_perplexity_is_that_of_sklearn() -> None:
    x, k = np.random.default_rng(1).standard_normal((61, 5)).astype(np.float32), 15
    graph = neighbor_graph(x, NeighborsConfig(k=k, perplexity=5))
    near, far = search(SearchedRows(x, "euclidean"), k, "exact", 0)[0]
    distances = sp.csr_matrix((far.ravel() ** 2, near.ravel(), np.arange(62) * k), (61, 61))
    distances.sort_indices()
    expected = _joint_probabilities_nn(distances, 5, 0).toarray()
    found = sp.csr_matrix((graph.weight, graph.indices, graph.indptr), (61, 61)).toarray()
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-7)


def test_fuzzy_weights_add_up_to_the_logarithm() -> None:
    distances = np.sqrt(_squares(23, 14))
    found = fuzzy_weights(distances)
    np.testing.assert_allclose(found.sum(1), np.log2(15), rtol=1e-4)
    np.testing.assert_array_equal(found[:, 0], 1)
    sigma = -(distances[:, 1:] - distances[:, :1]) / np.log(found[:, 1:])
    np.testing.assert_allclose(sigma, np.repeat(sigma[:, :1], 13, 1), rtol=1e-3)


def test_fuzzy_weights_of_equal_points() -> None:
    np.testing.assert_array_equal(fuzzy_weights(np.zeros((3, 4), np.float32)), 1)
    some = fuzzy_weights(np.array([[0, 0, 2, 3, 90]], np.float32))
    assert some[0, :3].tolist() == [1, 1, 1]  # the nearest that is not the same counts as near, too


def test_fuzzy_graph_is_the_union_of_both_directions() -> None:
    x = np.random.default_rng(2).standard_normal((43, 3)).astype(np.float32)
    graph = neighbor_graph(x, NeighborsConfig(weights="fuzzy", k=6))
    near, far = search(SearchedRows(x, "euclidean"), 6, "exact", 0)[0]
    own = np.zeros((43, 43))
    np.put_along_axis(own, near, fuzzy_weights(far), axis=1)
    found = sp.csr_matrix((graph.weight, graph.indices, graph.indptr), (43, 43)).toarray()
    np.testing.assert_allclose(found, own + own.T - own * own.T, rtol=1e-5)
