"""Edges between nearest neighbours in preprocess: what a graph of vectors holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from configs.errors import DataError, RecipeError
from configs.layout_options import NeighborsConfig
from configs.load import build_recipe
from tasks.ingest.stage import STAGE as INGEST
from tasks.layout.neighbors.graph import neighbor_graph
from tasks.preprocess.neighbors import write_neighbors
from tasks.preprocess.stage import STAGE
from tasks.stage import Parent, run_stage
from tasks.storage.graph_store import ArrayWriter, GraphStore
from tasks.storage.home import Home
from tests.preprocess.ears import Ears

X = np.random.default_rng(0).standard_normal((60, 5)).astype(np.float32) * np.float32([1, 1, 1, 1, 50])


def _run(home: Home, folder: Path, x: np.ndarray, *overrides: str, ears: Any = None) -> GraphStore:
    np.save(folder / "x.npy", x)
    data = {"name": "v", "dataset": {"name": "vectors", "files": str(folder / "x.npy")}, "model": {"name": "largevis"}}
    recipe = build_recipe(data, overrides)
    ingested = run_stage(INGEST, recipe, {}, home)
    options = {} if ears is None else {"listener": ears}
    outcome = run_stage(STAGE, recipe, {"ingest": Parent(ingested.manifest, ingested.folder)}, home, **options)
    return GraphStore(outcome.folder, outcome.manifest)


def test_arrays_are_those_of_the_graph(home: Home, tmp_path: Path) -> None:
    ears = Ears()
    store = _run(home, tmp_path, X, "preprocess.neighbors={k: 7, perplexity: 3}", ears=ears)
    expected = neighbor_graph(X, NeighborsConfig(k=7, perplexity=3))
    np.testing.assert_array_equal(store["csc_indptr"], expected.indptr)
    np.testing.assert_array_equal(store["csc_indices"], expected.indices)
    np.testing.assert_array_equal(store["csr_indices"], expected.indices)
    np.testing.assert_array_equal(store["edge_weight"], expected.weight)
    rows = np.repeat(np.arange(60), np.diff(expected.indptr))
    np.testing.assert_array_equal(rows[store["csr_eids"]], expected.indices)
    np.testing.assert_array_equal(store["feat"], X)
    manifest = store.manifest
    assert (manifest.num_edges, manifest.symmetric, manifest.task) == (len(expected.indices), True, "layout")
    assert manifest.report["neighbors"]["k"] == 7
    assert manifest.report["degrees"]["mean"] == pytest.approx(len(expected.indices) / 60, abs=1e-3)
    assert any("7 neighbours of each vector by euclidean, all of the nearest (exact" in text for text in ears.messages)


def test_neighbours_are_those_of_the_transformed_vectors(home: Home, tmp_path: Path) -> None:
    plain = _run(home, tmp_path, X, "preprocess.neighbors.k=5")
    scaled = _run(home, tmp_path, X, "preprocess.neighbors.k=5", "preprocess.transforms=[{name: standardize}]")
    expected = neighbor_graph((X - X.mean(0)) / X.std(0), NeighborsConfig(k=5))
    assert not np.array_equal(plain["csc_indices"], scaled["csc_indices"])
    np.testing.assert_array_equal(scaled["csc_indices"], expected.indices)


def test_constant_columns_and_equal_rows(home: Home, tmp_path: Path) -> None:
    x = np.concatenate([X, np.ones((60, 1), np.float32)], 1)
    np.testing.assert_array_equal(_run(home, tmp_path, x)["csc_indices"], _run(home, tmp_path, X)["csc_indices"])
    assert _run(home, tmp_path, np.ones((50, 3))).manifest.num_edges >= 2 * 49


def test_other_data_has_edges_of_its_own(tmp_path: Path) -> None:
    options = NeighborsConfig(k=5)
    context: Any = None
    with pytest.raises(RecipeError, match=r"preprocess.neighbors: the data set has 1,234 edges of its own; leave"):
        write_neighbors(context, ArrayWriter(tmp_path), options, 1, 1234)
    with pytest.raises(RecipeError, match="nodes have no numeric features to compare"):
        write_neighbors(context, ArrayWriter(tmp_path), options, 1, 0)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("preprocess.neighbors.k=0", "greater than or equal to 1"),
        ("preprocess.neighbors.k=many", "valid integer"),
        ("preprocess.neighbors.metric=manhattan", "'euclidean', 'cosine' or 'dot'"),
        ("preprocess.neighbors.perplexity=.nan", "is not a number"),
        ("preprocess.neighbors.perplexity=0", "greater than or equal to 1"),
        ("preprocess.neighbors={metric: dot, method: clusters}", "cannot search by the dot product"),
        ("preprocess.neighbors={weights: fuzzy, perplexity: 9}", "perplexity has no effect with weights=fuzzy"),
        ("preprocess.symmetrize=false", "symmetrize=false: neighbors join two rows in both directions"),
        ("preprocess.self_loops=add", "self_loops=add: neighbors join"),
        ("preprocess.neighbors.kk=1", "unknown key 'kk'"),
        ("preprocess.neighbors=5", "NeighborsConfig"),
        ("snapshot.as_of=2020", "vectors have no times"),
    ],
)
def test_wrong_options(override: str, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        build_recipe({"name": "v", "dataset": {"name": "vectors", "files": "x"}, "model": "largevis"}, [override])


@pytest.mark.parametrize("n", [1, 2, 3])
def test_few_vectors_lower_k(home: Home, tmp_path: Path, n: int) -> None:
    ears = Ears()
    if n == 1:
        with pytest.raises(DataError, match=r"preprocess\.neighbors, of the features that dataset gives: there is 1 v"):
            _run(home, tmp_path, X[:1])
        return
    store = _run(home, tmp_path, X[:n], "preprocess.feature_dtype=float16", ears=ears)
    assert store["feat"].dtype == np.float16
    assert store.manifest.num_edges == n * (n - 1)
    assert f"{n} vectors: k is {n - 1}, not 45" in ears.messages
