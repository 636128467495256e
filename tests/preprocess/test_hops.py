"""Hops: what they say against dense matrices, that no node sees its own label, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from configs.errors import RecipeError
from tasks.preprocess.transforms.hops import count_labels, mean_rows, mean_shares
from tasks.storage.graph_store import GraphStore

NODE = ("node", "to", "node")
N, CLASSES = 60, 4
TRAIN = np.arange(0, N, 3)


@pytest.fixture
def make(make_dataset: Any, node_splits: Any) -> Any:
    """Make a graph of random directed edges, mutual ones among them; `label` replaces its labels."""

    def dataset(label: Any = None, name: str = "dataset", **fields: Any) -> Any:
        rng = np.random.default_rng(1)
        src, dst = rng.integers(0, N, (2, 200))
        ends = {"src": np.r_[src, dst[:40]], "dst": np.r_[dst, src[:40]]}
        table = {
            "x": rng.standard_normal((N, 3)).astype(np.float32),
            "label": rng.integers(0, CLASSES, N) if label is None else label,
        }
        values = {"num_classes": CLASSES, **fields}
        return make_dataset({"node": (N, table)}, {NODE: ends}, node_splits(N), name=name, **values)

    return dataset


def steps(graph: GraphStore) -> dict[str, np.ndarray]:
    """Return dense 0/1 matrices (N, N), row v marks v's neighbours."""
    into = np.zeros((N, N))
    indptr = graph["csc_indptr"]
    for v in range(N):
        into[v, graph["csc_indices"][indptr[v] : indptr[v + 1]]] = 1
    return {"in": into, "out": into.T}


def averaging(matrix: np.ndarray) -> np.ndarray:
    return matrix / np.maximum(matrix.sum(1, keepdims=True), 1)


def scaled(x: np.ndarray) -> np.ndarray:
    deviation = np.maximum(x[TRAIN].std(0), 0.02)
    return np.clip((x - x[TRAIN].mean(0)) / deviation, -8, 8)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_features_are_averaged_along_paths(make: Any, preprocess: Any, dtype: str) -> None:
    hops = {"name": "hops", "features": ["out", "in-out", "out-in-in"]}
    graph = preprocess(make(), symmetrize=False, transforms=["standardize", hops], feature_dtype=dtype)
    feat, matrix = graph["feat"].astype(np.float64), {k: averaging(m) for k, m in steps(graph).items()}
    assert graph.manifest.feature_dim == feat.shape[1] == 12
    assert graph["feat"].dtype == np.dtype(dtype)
    x, tolerance = feat[:, :3], 2e-3 if dtype == "float16" else 1e-4
    expected = [matrix["out"] @ x, matrix["in"] @ matrix["out"] @ x, matrix["out"] @ matrix["in"] @ matrix["in"] @ x]
    for number, rows in enumerate(expected, start=1):
        np.testing.assert_allclose(
            feat[:, 3 * number : 3 * number + 3], scaled(rows), rtol=tolerance, atol=tolerance * 3
        )
    assert graph.manifest.report["transforms"][-1]["columns"] == [f"features {path}" for path in hops["features"]]
    assert graph.manifest.report["columns"]["feat"] == {"x": 3} | {f"features {path}": 3 for path in hops["features"]}


@pytest.mark.parametrize("loops", ["remove", "add"])
def test_labels_are_those_of_other_training_nodes(make: Any, preprocess: Any, loops: str) -> None:
    paths = ["in", "out", "out-in", "in-in"]
    hops = {"name": "hops", "features": [], "labels": paths}
    graph = preprocess(make(), symmetrize=False, transforms=[hops], self_loops=loops)
    one_hot = np.zeros((N, CLASSES))
    one_hot[TRAIN, graph["label"][TRAIN]] = 1
    matrix = {k: averaging(m) for k, m in steps(graph).items()}
    off = 1 - np.eye(N)
    for number, path in enumerate(paths):
        near, _, far = path.partition("-")
        reach = matrix[near] * off @ (matrix[far] * off) if far else matrix[near]
        shares = (reach * off) @ one_hot
        found = graph["feat"][:, 3 + CLASSES * number :][:, :CLASSES]
        np.testing.assert_allclose(found, scaled(shares), rtol=1e-3, atol=1e-3)


def test_labels_of_other_splits_are_not_read(make: Any, preprocess: Any) -> None:
    hops = {"name": "hops", "features": [], "labels": ["in", "out", "in-out", "out-in", "in-in", "out-out"]}
    label = np.arange(N) % CLASSES
    other = label.copy()
    other[1::3], other[2::3] = 0, 1  # valid and test
    shares = []
    for number, values in enumerate((label, other)):
        data = make(label=values, name=str(number))
        shares.append(np.array(preprocess(data, symmetrize=False, transforms=[hops])["feat"]))
    np.testing.assert_array_equal(shares[0], shares[1])


def test_no_node_sees_its_own_label() -> None:
    """Another label of one node leaves its own shares as they were, to the last bit."""
    label = np.arange(N) % CLASSES
    rng = np.random.default_rng(0)
    dense = rng.random((N, N)) < 0.1
    indptr = np.r_[0, np.cumsum(dense.sum(1))].astype(np.int64)
    indices = np.nonzero(dense)[1].astype(np.int32)
    for v in range(N):
        rows = []
        for own in range(CLASSES):
            known = label.astype(np.int64).copy()
            known[v] = own
            counts, out = np.zeros((N, CLASSES), np.float32), np.zeros((N, CLASSES), np.float32)
            count_labels(indptr, indices, known, counts)
            mean_shares(indptr, indices, indptr, indices, counts, known, out)
            rows.append(np.r_[counts[v], out[v]])
        assert all((row == rows[0]).all() for row in rows), v


@pytest.mark.parametrize(
    ("options", "hops", "said"),
    [
        ({}, {"features": ["out"]}, "cannot tell out from in"),
        ({"symmetrize": False}, {"features": []}, "names no paths"),
        ({"symmetrize": False, "behind": ["standardize"]}, {}, "standardize stands behind it"),
        ({}, {"features": ["in-ot"]}, "did you mean 'out'"),
        ({}, {"labels": ["in-in-in"]}, "labels take at most 2"),
        ({}, {"features": ["in", "in"]}, "listed twice"),
    ],
)
def test_refusals(make: Any, preprocess: Any, options: dict[str, Any], hops: Any, said: str) -> None:
    transforms = [{"name": "hops", **hops}, *options.get("behind", [])]
    with pytest.raises((RecipeError, ValueError), match=said):
        preprocess(make(), transforms=transforms, symmetrize=options.get("symmetrize", True))


def test_hubs_lose_nothing() -> None:
    """A million equal rows, or shares, have the mean that each of them has."""
    degree = 1_000_000
    indptr = np.array([0, degree, degree + 3, degree + 3], np.int64)
    indices = np.r_[np.full(degree, 2), [2, 2, 2]].astype(np.int32)
    x, out = np.full((3, 2), 0.1, np.float32), np.empty((3, 2), np.float32)
    mean_rows(indptr, indices, x, out)
    np.testing.assert_allclose(out, [[0.1, 0.1], [0.1, 0.1], [0, 0]], rtol=1e-6)
    far_indptr, far = np.array([0, 0, 0, 10], np.int64), np.full(10, 1, np.int32)
    mean_shares(indptr, indices, far_indptr, far, x * 10, np.full(3, -1), out)
    np.testing.assert_allclose(out, [[0.1, 0.1], [0.1, 0.1], [0, 0]], rtol=1e-6)


def test_what_hops_read_is_needed(make: Any, make_dataset: Any, node_splits: Any, preprocess: Any) -> None:
    label = np.random.default_rng(0).random((N, 2)).astype(np.float32)
    numbers = make(label=label, task_type="regression", num_classes=0, num_tasks=2)
    with pytest.raises(RecipeError, match="needs one class a node"):
        preprocess(numbers, transforms=[{"name": "hops", "features": [], "labels": ["in"]}])
    edges = {NODE: {"src": [0, 1], "dst": [1, 2]}}
    with pytest.raises(RecipeError, match="needs numeric features"):
        preprocess(make_dataset({"node": (N, {})}, edges, node_splits(N), name="bare"), transforms=["hops"])
