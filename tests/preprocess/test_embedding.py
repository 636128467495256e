"""Vectors of nodes as features: they are what the model makes of the graph's own messages, and computed once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from configs.errors import RecipeError
from configs.registry import MODELS, TRANSFORMS
from tasks.preprocess.transforms.embedding import Embedding
from tasks.sampling.factor_graph import factor_graph
from tasks.storage.graph_store import GraphStore
from tasks.storage.home import Home

NODE = ("node", "to", "node")
N = 60


@pytest.fixture
def dataset(make_dataset: Any, node_splits: Any) -> Any:
    rng = np.random.default_rng(0)
    source, target = rng.integers(0, N - 2, (2, 240))  # two nodes have no edge
    edges = {"src": source, "dst": target, "weight": rng.random(240).astype(np.float32) + 0.5}
    table = {"x": rng.standard_normal((N, 3)).astype(np.float32)}
    return make_dataset({"node": (N, table)}, {NODE: edges}, node_splits(N))


def expected(graph: GraphStore, **options: Any) -> np.ndarray:
    """The model's vectors of the finished graph."""
    config: Any = MODELS.config(options)
    symmetric = graph.manifest.symmetric
    found = factor_graph(graph, symmetric=symmetric, seed=3, weighted=config.weighted)
    vectors: Any = MODELS.get(options["name"])
    rows = vectors.factor(config, found, 3, lambda what: None).numpy().astype(np.float64)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    rows /= np.maximum(lengths, 1e-30)
    return np.asarray(rows / np.sqrt((rows**2).mean()))


@pytest.mark.parametrize("symmetrize", [True, False])
@pytest.mark.parametrize(
    ("model", "options"), [("prone", {"order": 4}), ("fastrp", {}), ("netmf", {"samples": 5000, "weighted": False})]
)
def test_they_are_those_of_the_model(
    dataset: Any, preprocess: Any, symmetrize: bool, model: str, options: dict[str, Any]
) -> None:
    transform = {"name": "embedding", "method": model, "dim": 6, "options": options, "seed": 3}
    graph = preprocess(dataset, transforms=["standardize", transform, "degree"], symmetrize=symmetrize)
    width = 3 + 6 + (1 if symmetrize else 2)
    assert graph.manifest.feature_dim == width
    found = graph["feat"][:, 3:9]
    assert np.mean(found**2) == pytest.approx(1, abs=1e-4)
    wanted = expected(graph, name=model, dim=6, **options)
    np.testing.assert_allclose(np.abs(found @ found.T), np.abs(wanted @ wanted.T), rtol=1e-3, atol=1e-3)


def test_what_cannot_work_is_refused(dataset: Any, preprocess: Any, make_dataset: Any, node_splits: Any) -> None:
    with pytest.raises(RecipeError, match=r"dim=61, more than the 60 nodes"):
        preprocess(dataset, transforms=[{"name": "embedding", "dim": 61}])
    bare = make_dataset({"node": (9, {})}, {NODE: {"src": [], "dst": []}}, node_splits(9), name="bare")
    with pytest.raises(RecipeError, match="embedding has no edges to read"):
        preprocess(bare, transforms=[{"name": "embedding", "dim": 2}])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "gcn"}, r"method=gcn is not computed at once .* as fastrp, netmf, prone are"),
        ({"method": "prome"}, "did you mean 'prone'"),
        ({"options": {"stepz": [1.0]}, "method": "fastrp"}, "options: .*did you mean 'steps'"),
        ({"dim": 0}, "greater than or equal to 1"),
        ({"model": "prone"}, r"of the form NAME@VERSION: prone@champion, or method=prone, computed from this graph's"),
        ({"model": "walks"}, r"of the form NAME@VERSION: walks@champion \[type="),
        ({"model": "walks@champion", "dim": 4}, r"dim is not an option of embedding with model=walks@champion; lea"),
        ({"model": "walks@champion", "method": "prone"}, "method is not an option of embedding with model"),
        ({"model": "walks@champion", "vectors": "0" * 24}, "vectors are those of one version"),
        ({"method": "prone", "allow_leak": True}, "allow_leak is not an option of embedding with method=prone"),
        ({"most_missing": 0.9}, "most_missing is not an option of embedding with method=prone"),
    ],
)
def test_options_are_checked_when_they_are_read(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        TRANSFORMS.config({"name": "embedding", **options})


def test_rows_are_computed_once_and_again_where_the_cache_was_altered(
    dataset: Any, preprocess: Any, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are there when it is asked whether vectors must be computed, and not trusted when they are read."""
    transform, prepare = {"name": "embedding", "dim": 6}, Embedding.prepare
    first = preprocess(dataset, transforms=[transform])["feat"].copy()
    calls = []
    monkeypatch.setattr(Embedding, "prepare", lambda self, graph: calls.append(graph))
    assert np.array_equal(preprocess(dataset, transforms=[transform, "log1p"])["feat"][:, 3:] != 0, first[:, 3:] != 0)
    assert not calls
    with pytest.raises(FileNotFoundError):  # nothing computed it
        preprocess(dataset, transforms=[{**transform, "seed": 1}])
    assert calls
    monkeypatch.setattr(Embedding, "prepare", prepare)
    kept = list(home.cache.rglob("*.pkl"))
    assert any(path.name.startswith("compute_rows") for path in kept)
    for path in kept:
        path.write_bytes(b"altered")
    again = preprocess(dataset, transforms=[transform])
    assert not list(again.folder.glob("*scratch*"))
    np.testing.assert_allclose(again["feat"], first, rtol=1e-4, atol=1e-4)
