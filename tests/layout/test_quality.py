"""Measures of layouts against plain ones."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.csgraph import shortest_path
from scipy.spatial.distance import cdist
from sklearn.neighbors import KNeighborsClassifier, NearestNeighbors

from tasks.arrays import Array
from tasks.layout.quality import measure
from tasks.layout.quality.measure import label_codes, measure_layout

COUNT, DIM = 331, 13


@pytest.fixture(scope="module")
def vectors() -> Array:
    rng = np.random.default_rng(3)
    return (rng.normal(size=(COUNT, DIM)) + 3 * rng.normal(size=(7, DIM))[rng.integers(7, size=COUNT)]).astype(
        np.float32
    )


@pytest.fixture(scope="module")
def coordinates(vectors: Array) -> Array:
    """Not a good layout, nor a random one."""
    return vectors[:, :2] + 0.3 * np.random.default_rng(4).normal(size=(COUNT, 2)).astype(np.float32)


@pytest.fixture(scope="module")
def graph(coordinates: Array) -> tuple[Array, Array]:
    """Edges between near points and some between any, both ways, with loops and a node without edges."""
    rng = np.random.default_rng(5)
    near = NearestNeighbors(n_neighbors=4).fit(coordinates).kneighbors(return_distance=False)
    rows = np.concatenate([np.repeat(np.arange(COUNT), 4), rng.integers(COUNT, size=60)])
    columns = np.concatenate([near.reshape(-1), rng.integers(COUNT, size=60)])
    kept = (rows != 17) & (columns != 17)
    matrix = sp.csr_matrix((np.ones(kept.sum()), (rows[kept], columns[kept])), (COUNT, COUNT))
    matrix = sp.csr_matrix(matrix + matrix.T)
    return matrix.indptr.astype(np.int64), matrix.indices


def ranks_of(distances: Array) -> Array:
    """Return the rank of each other row: 1 is the nearest."""
    distances = distances.copy()
    np.fill_diagonal(distances, -np.inf)
    return np.argsort(np.argsort(distances, axis=1), axis=1)


def distances_of(vectors: Array, metric: str) -> Array:
    if metric == "dot":
        return -(vectors.astype(np.float64) @ vectors.T)
    return cdist(vectors.astype(np.float64), vectors.astype(np.float64), metric)


@pytest.mark.parametrize("metric", ["euclidean", "cosine", "dot"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_neighborhoods_are_those_of_whole_tables(vectors: Array, coordinates: Array, metric: str, dtype: type) -> None:
    found, sampled = measure_layout(coordinates, vectors.astype(dtype), metric, threads=2)
    there, here = ranks_of(distances_of(vectors, metric)), ranks_of(cdist(coordinates, coordinates))
    k, n = 15, COUNT
    most = n * k * (2 * n - 3 * k - 1) / 2
    near_there, near_here = (there > 0) & (there <= k), (here > 0) & (here <= k)
    assert found["trustworthiness"] == pytest.approx(1 - np.maximum(there - k, 0)[near_here].sum() / most, abs=1e-6)
    assert found["continuity"] == pytest.approx(1 - np.maximum(here - k, 0)[near_there].sum() / most, abs=1e-6)
    assert found["neighbors_kept"] == pytest.approx((near_there & near_here).sum() / (n * k), abs=1e-9)
    assert sampled["trustworthiness"] == n
    assert "trustworthiness_error" not in sampled


@pytest.mark.parametrize("dim", [2, 3])
def test_threads_and_blocks_change_no_bit(vectors: Array, dim: int, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = vectors[:, :dim].copy()
    first = measure_layout(layout, vectors, labels=np.arange(COUNT) % 5)
    monkeypatch.setattr("tasks.layout.quality.points._QUERIES", 40)
    for module in ("quality.points", "neighbors.nearest", "neighbors.rows"):
        monkeypatch.setattr(f"tasks.layout.{module}.BLOCK_BYTES", 40 * 4 * 37)
    second = measure_layout(layout, vectors, labels=np.arange(COUNT) % 5, threads=3)
    assert first[0] == pytest.approx(second[0], abs=1e-7)
    assert second == measure_layout(layout, vectors, labels=np.arange(COUNT) % 5, threads=1)


def test_a_memory_map_of_halves_is_read(vectors: Array, coordinates: Array, tmp_path) -> None:  # type: ignore[no-untyped-def]
    np.save(tmp_path / "halves.npy", vectors.astype(np.float16))
    mapped = np.load(tmp_path / "halves.npy", mmap_mode="r")
    expected, _ = measure_layout(coordinates, vectors.astype(np.float16).astype(np.float64))
    assert measure_layout(coordinates, mapped)[0] == pytest.approx(expected, abs=1e-4)


def test_a_sample_is_near_to_all_by_its_error(
    vectors: Array, coordinates: Array, graph: tuple[Array, Array], monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = np.arange(COUNT) % 3
    every, _ = measure_layout(coordinates, vectors, edges=graph, labels=labels)
    for name, most in [("_ALL_ROWS", 150), ("_LEAST_ROWS", 150), ("_MOST_POINTS", 150), ("_MOST_LENGTHS", 400)]:
        monkeypatch.setattr(measure, name, most)
    monkeypatch.setattr(measure, "_CROSSING_TESTS", 0)
    monkeypatch.setattr(measure, "_LEAST_CROSSED", 200)
    for seed in range(5):
        some, sampled = measure_layout(coordinates, vectors, edges=graph, labels=labels, seed=seed)
        assert sampled["trustworthiness"] == sampled["knn_accuracy"] == 150
        assert sampled["crossing_edges"] == 200
        for name in set(every) - {"stress", "triplets"}:
            error = sampled[f"{name}_error"]
            assert error > 0
            assert abs(some[name] - every[name]) < 4 * error, (name, seed)


def test_accuracy_is_that_of_a_classifier_that_leaves_one_out(coordinates: Array) -> None:
    labels = np.digitize(coordinates[:, 0], [-2, 0, 1]) + 4
    labels[::7] = -1
    known = np.flatnonzero(labels >= 0)
    classifier = KNeighborsClassifier(10)
    hits = [
        classifier.fit(coordinates[rest], labels[rest]).predict(coordinates[[row]])[0] == labels[row]
        for row in known
        for rest in [known[known != row]]
    ]
    found, sampled = measure_layout(coordinates, labels=labels)
    assert found == {"knn_accuracy": pytest.approx(np.mean(hits), abs=1e-9)}
    assert sampled["knn_accuracy"] == len(known)
    words = np.array([None if code < 0 else f"class {code}" for code in labels], object)
    assert measure_layout(coordinates, labels=words)[0] == found


def test_codes_of_labels_leave_out_what_is_missing() -> None:
    assert label_codes(np.array([3, -1, 7, 3])).tolist() == [0, -1, 1, 0]
    assert label_codes(np.array([np.nan, 2.0, -1.0, 0.5])).tolist() == [-1, 1, -1, 0]
    assert label_codes(np.array(["b", "", None, "a", float("nan")], object)).tolist() == [1, -1, -1, 0, -1]
    assert label_codes(np.array([True, False])).tolist() == [1, 0]


def test_triplets_are_in_the_same_order(vectors: Array, coordinates: Array) -> None:
    there, here = cdist(vectors, vectors), cdist(coordinates, coordinates)
    same = []
    for i in range(COUNT):
        others = np.delete(np.arange(COUNT), i)
        a, b = np.triu_indices(COUNT - 1, 1)
        a, b = others[a], others[b]
        same.append(((there[i, a] < there[i, b]) == (here[i, a] < here[i, b])).mean())
    found, sampled = measure_layout(coordinates, vectors)
    assert sampled["triplets"] == 5 * COUNT
    assert abs(found["triplets"] - np.mean(same)) < 4 * sampled["triplets_error"] < 0.06
    assert measure_layout(coordinates, coordinates)[0]["triplets"] == 1
    mirrored = np.stack([coordinates[:, 0], np.zeros(COUNT)], 1)
    assert measure_layout(mirrored, -mirrored)[0]["triplets"] == 1


def crosses(a: Array, b: Array, c: Array, d: Array) -> Array:
    """Solve a + s (b - a) = c + t (d - c) for one edge a, b and edges c, d (m, 2)."""
    matrices = np.stack([np.broadcast_to(b - a, c.shape), c - d], axis=2)
    determinants = np.linalg.det(matrices)
    matrices[np.abs(determinants) < 1e-15] = np.eye(2) * 1e-9
    s, t = np.linalg.solve(matrices, (c - a)[:, :, None])[:, :, 0].T
    return (s > 0) & (s < 1) & (t > 0) & (t < 1)


def test_measures_of_edges_are_those_of_the_formulas(coordinates: Array, graph: tuple[Array, Array]) -> None:
    indptr, indices = graph
    found, sampled = measure_layout(coordinates, edges=graph, threads=2)
    matrix = sp.csr_matrix((np.ones(len(indices)), indices, indptr), (COUNT, COUNT))
    matrix.setdiag(0)
    matrix.eliminate_zeros()
    first, second = sp.triu(matrix).nonzero()
    at = coordinates.astype(np.float64)
    lengths = np.linalg.norm(at[first] - at[second], axis=1)
    assert found["stretched_edges"] == pytest.approx((lengths > 5 * np.median(lengths)).mean())
    assert 0 < found["stretched_edges"] < 1
    counts = np.zeros(len(first))
    for e in range(len(first)):
        apart = ~np.isin(first, [first[e], second[e]]) & ~np.isin(second, [first[e], second[e]])
        counts[e] = crosses(at[first[e]], at[second[e]], at[first[apart]], at[second[apart]]).sum()
    assert found["crossings_per_edge"] == pytest.approx(counts.mean())
    assert found["crossing_edges"] == pytest.approx((counts > 0).mean())
    assert sampled["crossing_edges"] == len(first)
    kept = []
    for node in np.flatnonzero(np.diff(matrix.indptr)):
        others = matrix[node].indices
        near = np.argsort(cdist(at[[node]], at)[0])[1 : len(others) + 1]
        kept.append(len(set(near) & set(others)) / len(others))
    assert found["graph_neighbors_kept"] == pytest.approx(np.mean(kept))


def test_stress_is_that_of_all_paths(coordinates: Array, graph: tuple[Array, Array], monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(measure, "_PATH_SOURCES", COUNT)
    found, _ = measure_layout(coordinates, edges=graph)
    matrix = sp.csr_matrix((np.ones(len(graph[1])), graph[1], graph[0]), (COUNT, COUNT))
    paths, lengths = shortest_path(matrix, unweighted=True), cdist(coordinates, coordinates)
    pairs = np.isfinite(paths) & (paths > 0)
    relative = lengths[pairs] / paths[pairs]
    scales = np.linspace(0, 3 / relative.mean(), 30_001)
    expected = min(np.square(scale * relative - 1).mean() for scale in scales[::10])
    assert found["stress"] == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5, 16, 40])
@pytest.mark.parametrize("kind", ["equal", "random"])
def test_few_or_equal_points_are_measured_or_left_out(count: int, kind: str) -> None:
    rng = np.random.default_rng(count)
    rows = np.ones((count, 3)) if kind == "equal" else rng.normal(size=(count, 3))
    indices = np.arange(count)[::-1].copy()
    indptr = np.arange(count + 1)
    found, sampled = measure_layout(rows[:, :2], rows, edges=(indptr, indices), labels=np.zeros(count))
    assert all(0 <= value <= 1 for name, value in found.items() if name not in ("crossings_per_edge"))
    assert all(np.isfinite(value) for value in sampled.values())
    assert ("trustworthiness" in found) == (count > 3)
    assert ("knn_accuracy" in found) == (count > 1)
    if kind == "equal" and count > 3:
        assert found["trustworthiness"] == 1
        assert found["triplets"] == 0.5


def test_labels_that_are_all_missing_and_graphs_without_edges_say_nothing() -> None:
    places = np.random.default_rng(0).normal(size=(20, 2))
    assert measure_layout(places, labels=np.full(20, -1)) == ({}, {})
    assert measure_layout(places, edges=(np.zeros(21, np.int64), np.zeros(0, np.int32))) == ({}, {})
    loops = (np.arange(21), np.arange(20))
    assert measure_layout(places, edges=loops) == ({}, {})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"coordinates": np.array([[0, 1], [np.nan, 2], [1, np.inf]])}, "2 of 3 points .* row 1 first"),
        ({"vectors": np.full((5, 3), np.nan)}, "row 0, column 0 is not a finite"),
    ],
)
def test_what_is_not_finite_is_told(change: dict[str, Array], message: str) -> None:
    given = {"coordinates": np.random.default_rng(0).normal(size=(5, 2)), **change}
    with pytest.raises(ValueError, match=message):
        measure_layout(**given)  # type: ignore[arg-type]
