"""The generated graph has the properties that it promises."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from configs.errors import RecipeError
from configs.load import build_recipe
from tasks.counter_random import below, bits, permute, uniform, unpermute
from tasks.ingest.synthetic import generator
from tasks.ingest.synthetic.dataset import Synthetic, features_alone
from tasks.ingest.synthetic.generator import bayes_accuracy, solve_delta
from tasks.storage.dataset_store import DatasetStore
from tests.ingest.conftest import Ingest


def load(store: DatasetStore) -> tuple[np.ndarray, ...]:
    names = ("src", "dst")
    src, dst = (store.column("edges/node__to__node", name).astype(np.int64) for name in names)
    return src, dst, store.column("nodes/node", "feat"), store.column("nodes/node", "label")


@pytest.mark.parametrize("n", [1, 2, 3, 17, 1000, 4097])
def test_permutation(n: int) -> None:
    image = [permute(7, n, i) for i in range(n)]
    assert sorted(image) == list(range(n))
    assert [unpermute(7, n, j) for j in image] == list(range(n))


def test_numbers_by_counter() -> None:
    draws = np.array([uniform(3, 1, i) for i in range(20_000)])
    assert abs(draws.mean() - 0.5) < 0.01
    assert abs(np.corrcoef(draws[:-1], draws[1:])[0, 1]) < 0.03
    other = np.array([uniform(3, 2, i) for i in range(20_000)])
    assert abs(np.corrcoef(draws, other)[0, 1]) < 0.03
    assert len({int(bits(3, 1, i)) for i in range(1000)}) == 1000
    counts = np.bincount([below(1, 1, i, 7) for i in range(14_000)], minlength=7)
    assert counts.min() > 1800


def test_shape_of_the_graph(ingest: Ingest) -> None:
    store = ingest(name="synthetic", num_nodes=5000, num_edges=40_000, num_classes=5, feature_dim=16)
    src, dst, feat, label = load(store)
    assert (len(src), feat.shape, store.manifest.num_self_loops) == (40_000, (5000, 16), 0)
    assert store.manifest.num_duplicate_edges == 40_000 - len(np.unique(src * 5000 + dst))
    assert np.bincount(label, minlength=5).min() > 850
    # 0.5 within the community, of the rest 0.4 within the class, a fifth of what is left by chance: 0.5 + 0.2 + 0.06;
    # 5 % noise at both ends.
    assert 0.64 < (label[src] == label[dst]).mean() < 0.74
    adjacency = sp.coo_matrix((np.ones(40_000), (src, dst)), shape=(5000, 5000))
    count, of = connected_components(adjacency, directed=False)
    sizes = np.bincount(of)
    assert sizes.max() > 4700
    assert (sizes == 8).sum() == 12  # 2 % of 5000 nodes, in trees of 8
    assert count > 12
    degree = np.bincount(np.concatenate([src, dst]), minlength=5000)
    assert degree.max() > 5 * degree.mean()
    assert np.median(degree) < degree.mean()
    # An id says nothing about a node: neighbours in id have unrelated labels.
    assert abs((label[1:] == label[:-1]).mean() - 0.2) < 0.03


def test_difficulty_is_as_promised(ingest: Ingest) -> None:
    from sklearn.linear_model import LogisticRegression

    options: dict[str, Any] = {"num_nodes": 10_000, "num_edges": 75_000, "num_classes": 8, "feature_dim": 32}
    config = Synthetic.Config(name="synthetic", **options)
    src, dst, feat, label = load(store := ingest(name="synthetic", **options))
    train, test = (store.column(f"split/{name}", "node_id") for name in ("train", "test"))

    def accuracy(x: np.ndarray) -> float:
        return float(LogisticRegression(max_iter=60, tol=1e-2).fit(x[train], label[train]).score(x[test], label[test]))

    alone = accuracy(feat)
    assert abs(alone - features_alone(config)) < 0.03
    pairs = (np.concatenate([src, dst]), np.concatenate([dst, src]))
    adjacency = sp.csr_matrix((np.ones(len(pairs[0])), pairs), shape=(10_000, 10_000))
    mean = sp.diags(1 / np.maximum(np.asarray(adjacency.sum(1)).ravel(), 1)) @ adjacency
    near, far = mean @ feat, mean @ (mean @ feat)
    with_graph = accuracy(np.hstack([feat, near, far]))
    assert alone + 0.35 < with_graph < 0.95


def test_delta_gives_the_accuracy() -> None:
    rng = np.random.default_rng(0)
    for classes, wanted in ((2, 0.7), (8, 0.5), (40, 0.9)):
        delta = solve_delta(wanted, classes)
        assert abs(bayes_accuracy(delta, classes) - wanted) < 1e-9
        scores = rng.standard_normal((100_000, classes))
        scores[:, 0] += delta
        assert abs((scores.argmax(1) == 0).mean() - wanted) < 0.006


def test_label_noise() -> None:
    config = Synthetic.Config(name="synthetic", num_nodes=20_000, label_noise=0.3, feature_dim=0)
    label, clean = np.empty(20_000, np.int64), np.empty(20_000, np.int64)
    centres = np.zeros((8, 0))
    generator.make_nodes(0, label, np.empty((20_000, 0), np.float32), centres, generator.make_layout(config))
    quiet = generator.make_layout(config.model_copy(update={"label_noise": 0.0}))
    generator.make_nodes(0, clean, np.empty((20_000, 0), np.float32), centres, quiet)
    assert abs((label != clean).mean() - 0.3) < 0.012


def test_chunks_are_independent(monkeypatch: pytest.MonkeyPatch, ingest: Ingest) -> None:
    whole = ingest(name="synthetic", num_nodes=1000, num_edges=5000, feature_dim=9, num_classes=4, seed=3)
    monkeypatch.setattr(generator, "EDGE_CHUNK", 700)
    monkeypatch.setattr(generator, "NODE_CHUNK", 64)
    pieces = ingest(
        name="synthetic", num_nodes=1000, num_edges=5000, feature_dim=9, num_classes=4, seed=3, test_share=0.21
    )
    assert whole.folder != pieces.folder
    for a, b in zip(load(whole), load(pieces), strict=True):
        np.testing.assert_array_equal(a, b)


def test_link_task(ingest: Ingest) -> None:
    store = ingest(
        name="synthetic",
        task="link",
        num_nodes=2000,
        num_edges=20_000,
        valid_share=0.1,
        test_share=0.1,
        num_negatives=500,
    )
    manifest = store.manifest
    assert (manifest.task_type, manifest.metric) == ("link", "hits@50")
    pairs = {}
    for split in ("train", "valid", "test"):
        table = store.read(f"split/{split}")
        ends = np.sort(np.stack([np.asarray(table["src"]), np.asarray(table["dst"])], 1), axis=1).astype(np.int64)
        pairs[split] = set((ends[:, 0] * 2000 + ends[:, 1]).tolist())
    assert not pairs["train"] & pairs["test"]
    assert not pairs["train"] & pairs["valid"]
    assert sum(manifest.splits.values()) == 20_000
    assert abs(manifest.splits["test"] - 2000) < 200
    assert manifest.num_edges == manifest.splits["train"]
    assert store.table("split/valid_negative").num_rows == 500


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"feature_dim": 4}, "below num_classes"),
        ({"feature_accuracy": 0.1}, "not above chance"),
        ({"valid_share": 0.6, "test_share": 0.5}, "something to train on"),
        ({"label_noise": 0.9}, "no more than chance"),
        ({"num_nodes": 20}, "below four a class"),
    ],
)
def test_options_that_cannot_be(change: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        build_recipe({"name": "x", "dataset": {"name": "synthetic", **change}, "model": {"name": "graphsage"}})
