"""Nearest neighbours of vectors, and the weights of edges to them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import brentq
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components
from sklearn.manifold._t_sne import _joint_probabilities_nn

from configs.errors import DataError
from configs.layout_options import NeighborsConfig
from tasks.layout.neighbors import nearest as products
from tasks.layout.neighbors import rows
from tasks.layout.neighbors.graph import NeighborGraph, fuzzy_weights, neighbor_graph, perplexity_weights
from tasks.layout.neighbors.rows import SearchedRows
from tasks.layout.neighbors.search import Method, chosen_method, nearest_among, refine, search


def _vectors(n: int, d: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, d)).astype(np.float32)


def nearest(x: np.ndarray, k: int, metric: rows.Metric = "euclidean", method: Method = "auto") -> rows.NeighborLists:
    return search(SearchedRows(x, metric), k, chosen_method(len(x), metric, method), seed=0)[0]


def _reference(queries: np.ndarray, others: np.ndarray, metric: str) -> np.ndarray:
    """Distances of all to all in float64."""
    a, b = queries.astype(np.float64), others.astype(np.float64)
    if metric == "euclidean":
        return np.sqrt(((a[:, None] - b[None]) ** 2).sum(-1))
    if metric == "dot":
        return -a @ b.T
    lengths = np.linalg.norm(a, axis=1)[:, None] * np.linalg.norm(b, axis=1)
    return 1 - a @ b.T / lengths


@pytest.mark.parametrize("metric", ["euclidean", "cosine", "dot"])
@pytest.mark.parametrize(("n", "d", "k"), [(2, 1, 1), (83, 7, 5), (40, 3, 39)])
def test_exact_neighbours(monkeypatch: pytest.MonkeyPatch, metric: str, n: int, d: int, k: int) -> None:
    monkeypatch.setattr(products, "_QUERIES", 17)
    monkeypatch.setattr(rows, "BLOCK_BYTES", 4 * d * 11)
    x = _vectors(n, d) + np.float32(3)
    expected = _reference(x, x, metric)
    np.fill_diagonal(expected, np.inf)
    near, far = nearest(x, k, metric)
    np.testing.assert_allclose(far, np.sort(expected, 1)[:, :k], rtol=1e-4, atol=2e-5)
    np.testing.assert_allclose(np.take_along_axis(expected, near, 1), far, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int32, np.uint8])
def test_other_numbers_and_mapped_files(tmp_path: Path, dtype: type) -> None:
    x = np.round(_vectors(50, 4) * 20 + 100).astype(dtype)
    np.save(tmp_path / "x.npy", x)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    for found, expected in zip(nearest(mapped, 6), nearest(x.astype(np.float32), 6), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("metric", ["euclidean", "cosine", "dot"])
def test_new_ones_among_the_mapped(metric: str) -> None:
    new, mapped = _vectors(13, 5, 1), _vectors(31, 5, 2)
    near, far = nearest_among(new, mapped, 31, metric)
    expected = _reference(new, mapped, metric)
    np.testing.assert_allclose(far, np.sort(expected, 1), rtol=1e-4, atol=1e-5)
    assert sorted(near[0]) == list(range(31))


def test_vectors_far_from_zero_keep_their_neighbours() -> None:
    x = np.random.default_rng(0).integers(0, 1000, (3000, 2)).astype(np.float32)
    far_away = x + np.float32(1 << 13)
    for method in ("exact", "clusters"):
        np.testing.assert_allclose(nearest(far_away, 5, method=method)[1], nearest(x, 5, method=method)[1], rtol=1e-4)


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_clusters_find_most_neighbours(monkeypatch: pytest.MonkeyPatch, metric: str) -> None:
    monkeypatch.setattr(products, "_CLUSTER_ROWS", 32)
    monkeypatch.setattr(products, "_CANDIDATES", 400)
    x = _vectors(1501, 6)
    near, far = nearest(x, 9, metric, "clusters")
    true, _ = nearest(x, 9, metric, "exact")
    assert 0.9 < _hits(near, true) < 1
    np.testing.assert_allclose(np.take_along_axis(_reference(x, x, metric), near, 1), far, rtol=1e-4, atol=1e-6)
    assert (near != np.arange(len(x))[:, None]).all()
    again = nearest(x, 9, metric, "clusters")
    np.testing.assert_array_equal(near, again[0])
    np.testing.assert_array_equal(far, again[1])


def _hits(near: np.ndarray, true: np.ndarray) -> float:
    return float(np.mean([len(set(a) & set(b)) / len(b) for a, b in zip(near, true, strict=True)]))


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_a_round_of_refinement_finds_more(metric: str, dtype: type) -> None:
    x = (_vectors(403, 5) + 1).astype(dtype)
    chosen = np.flatnonzero(np.arange(403) % 4 != 1)
    some = SearchedRows(x, metric, chosen)
    true, _ = nearest(x[chosen], 7, metric)
    draw = np.random.default_rng(3)
    near = np.where(draw.random(true.shape) < 0.5, true, -1)
    for i, row in enumerate(near):  # half of the true ones, and others
        others = np.setdiff1d(np.arange(len(chosen)), [*row, i])
        row[row < 0] = draw.choice(others, np.count_nonzero(row < 0), replace=False)
    apart = _reference(x[chosen], x[chosen], metric)
    far = np.take_along_axis(apart, near, 1)
    order = np.argsort(far, 1)
    found = np.take_along_axis(near, order, 1), np.take_along_axis(far, order, 1).astype(np.float32)
    better, distances = refine(some, found)
    assert _hits(better, true) > _hits(near, true) + 0.2
    assert all(len(set(row)) == 7 and i not in row for i, row in enumerate(better.tolist()))
    assert (distances <= found[1] + 1e-5).all()
    np.testing.assert_allclose(np.take_along_axis(apart, better, 1), distances, rtol=1e-3, atol=1e-4)
    assert (np.diff(distances, axis=1) >= 0).all()


def test_clusters_know_no_products() -> None:
    with pytest.raises(ValueError, match="clusters cannot be searched by the dot product; take the method exact"):
        nearest(_vectors(20, 2), 3, "dot", "clusters")


def _check(graph: NeighborGraph, n: int) -> None:
    matrix = csr_matrix((graph.weight, graph.indices, graph.indptr), (n, n))
    assert matrix.has_canonical_format
    assert abs(matrix - matrix.T).max() == 0
    assert matrix.diagonal().max() == 0
    assert matrix.data.min() > 0
    assert np.diff(graph.indptr).min() > 0
    assert connected_components(matrix)[0] == 1


@pytest.mark.parametrize("weights", ["perplexity", "fuzzy"])
def test_graph_of_many_copies_holds_together(weights: str) -> None:
    some = _vectors(5, 3)
    x = some[np.random.default_rng(0).integers(0, 5, 5_000)]
    graph = neighbor_graph(x, NeighborsConfig(weights=weights, k=30))
    _check(graph, len(x))
    assert graph.num_copies >= 4_900
    degrees = np.diff(graph.indptr)
    assert degrees.max() < 20 * degrees.mean()


def test_copies_are_nearer_than_others() -> None:
    group = np.random.default_rng(0).integers(0, 20, 4_000)
    graph = neighbor_graph(_vectors(20, 6)[group], NeighborsConfig())
    sources = np.repeat(np.arange(4_000), np.diff(graph.indptr))
    own = graph.weight[group[sources] == group[graph.indices]].sum()
    assert 0.7 < own / graph.weight.sum() < 0.95  # groups are seen, and hang together


@pytest.mark.parametrize("weights", ["perplexity", "fuzzy"])
@pytest.mark.parametrize("n", [2, 3, 50])
def test_graph_of_equal_rows(weights: str, n: int) -> None:
    graph = neighbor_graph(np.ones((n, 4)), NeighborsConfig(weights=weights))
    _check(graph, n)


@pytest.mark.parametrize(
    ("metric", "method"), [("euclidean", "exact"), ("cosine", "exact"), ("dot", "exact"), ("euclidean", "clusters")]
)
@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_what_is_not_finite_is_named(metric: str, method: str, number: float) -> None:
    x = _vectors(20, 3)
    x[11, 2] = number
    with pytest.raises(DataError, match=r"row 11.* is not a finite float32 number"):
        nearest(x, 3, metric, method)
    with pytest.raises(DataError, match="row 11"):
        nearest_among(x, _vectors(20, 3), 3, metric)


@pytest.mark.parametrize("factor", [1e30, 1e-30])
def test_numbers_that_cannot_be_squared_are_refused(factor: float) -> None:
    with pytest.raises(DataError, match=r"float32 cannot square it; (divide|multiply) all by one number"):
        nearest(_vectors(20, 3) * factor, 3)
    assert np.isfinite(nearest(_vectors(20, 3) * factor, 3, "cosine")[1]).all()


def test_shapes_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match=r"numbers \(n, d\) are needed"):
        nearest(np.zeros(5), 1)
    with pytest.raises(ValueError, match="new vectors have 3 columns, and those of the map 2"):
        nearest_among(np.zeros((5, 3)), np.zeros((5, 2)), 2)


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
