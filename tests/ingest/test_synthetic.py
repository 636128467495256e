"""The generated graph and knowledge graph have the properties that they promise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from pydantic import ValidationError
from scipy.sparse.csgraph import connected_components

from configs.registry import DATASETS
from tasks.counter_random import below, bits, permute, uniform, unpermute
from tasks.ingest.synthetic import generator, triple_generator
from tasks.ingest.synthetic.dataset import Synthetic, features_alone
from tasks.ingest.synthetic.generator import bayes_accuracy, solve_delta
from tasks.ingest.synthetic.triple_generator import make_relations
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
    options = {"num_nodes": 1000, "num_edges": 5000, "feature_dim": 9, "num_classes": 4, "seed": 3}
    whole = ingest(name="synthetic", **options)
    monkeypatch.setattr(generator, "EDGE_CHUNK", 700)
    monkeypatch.setattr(generator, "NODE_CHUNK", 64)
    pieces = ingest(name="synthetic", **options, test_share=0.21)
    assert whole.folder != pieces.folder
    for a, b in zip(load(whole), load(pieces), strict=True):
        np.testing.assert_array_equal(a, b)


def test_link_task(ingest: Ingest) -> None:
    shares = {"valid_share": 0.1, "test_share": 0.1}
    store = ingest(name="synthetic", task="link", num_nodes=2000, num_edges=20_000, num_negatives=500, **shares)
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


SPLITS = ("train", "valid", "test")


def triples(store: DatasetStore, *splits: str) -> np.ndarray:
    columns = ("src", "relation", "dst")
    parts = [np.stack([store.column(f"split/{split}", name) for name in columns], 1) for split in splits or SPLITS]
    return np.concatenate(parts).astype(np.int64)


def pairs(rows: np.ndarray, relation: int) -> set[tuple[int, int]]:
    return {(h, t) for h, r, t in rows.tolist() if r == relation}


def test_size_and_shape(ingest: Ingest) -> None:
    store = ingest(name="synthetic_triples")
    manifest, rows = store.manifest, triples(store)
    assert (manifest.task, manifest.metric, manifest.num_nodes, manifest.num_relations) == ("triple", "mrr", 150, 40)
    assert len(rows) == 6250
    assert len(np.unique(rows, axis=0)) == 6250  # a triple stands once
    assert 4800 < manifest.splits["train"] < 5200
    assert np.unique(triples(store, "train")[:, [0, 2]]).tolist() == list(range(150))
    assert store.read("relations")["name"].to_pylist()[:6] == [
        "turn_0", "inverse_1", "symmetric_2", "turn_3", "composed_4", "one_way_5",
    ]  # fmt: skip
    edges = store.read("edges/entity__to__entity").to_pydict()
    train = triples(store, "train")
    assert (edges["src"], edges["dst"]) == (train[:, 0].tolist(), train[:, 2].tolist())


@pytest.mark.parametrize("options", [{}, {"num_entities": 413, "num_types": 4, "num_relations": 24, "noise": 0.2}])
def test_patterns(ingest: Ingest, options: dict[str, Any]) -> None:
    rows = triples(ingest(name="synthetic_triples", **options))
    for first in range(0, 24, 6):
        turn, inverse, symmetric, _, _, one_way = (pairs(rows, first + k) for k in range(6))
        turned = {(t, h) for h, t in inverse}
        assert len(turn & turned) >= len(turned) - 1  # one of the two may have a triple more
        assert len({(t, h) for h, t in symmetric} - symmetric) <= 1
        back = {(t, h) for h, t in one_way} & one_way
        assert len(back) <= options.get("noise", 0.02) * len(one_way)


def test_composed_relations_are_both_turns(ingest: Ingest) -> None:
    rows = triples(ingest(name="synthetic_triples", noise=0))
    for first in range(0, 36, 6):
        one, two, both = (pairs(rows, first + k) for k in (0, 3, 4))
        after: dict[int, set[int]] = {}
        for middle, tail in two:
            after.setdefault(middle, set()).add(tail)
        reached = {(head, tail) for head, middle in one for tail in after.get(middle, ())}
        # Some middles are not there, and places are rounded between types; by chance a fifth would be reached.
        assert len(both & reached) > 0.6 * len(both)


def test_noise_leads_elsewhere(ingest: Ingest) -> None:
    clean, noisy = (triples(ingest(name="synthetic_triples", noise=noise)) for noise in (0, 0.3))
    changed = (np.sort(clean, axis=0) != np.sort(noisy, axis=0)).any()
    kept = len(set(map(tuple, clean.tolist())) & set(map(tuple, noisy.tolist())))
    assert changed
    assert 0.65 < kept / len(clean) < 0.78
    assert len(np.unique(noisy, axis=0)) == len(noisy)


def test_the_same_in_any_chunks(ingest: Ingest, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"name": "synthetic_triples", "num_triples": 3001, "num_relations": 17}
    whole = triples(ingest(**options, seed=5))
    monkeypatch.setattr(triple_generator, "_CHUNK", 100)
    monkeypatch.setattr("tasks.ingest.synthetic.dataset.SyntheticTriples.fingerprint", lambda *_: {"again": 1})
    np.testing.assert_array_equal(triples(ingest(**options, seed=5)), whole)
    assert (triples(ingest(**options, seed=6))[:, 0] != whole[:, 0]).any()


def test_relations_compose_where_they_meet() -> None:
    config = DATASETS.config({"name": "synthetic_triples", "num_relations": 60, "num_entities": 1000, "num_types": 20})
    found = make_relations(config)  # type: ignore[arg-type]
    for first in range(0, 60, 6):
        assert found.target[first] == found.source[first + 3]
        assert found.of[first + 1] == first
        assert (found.source[first + 4], found.target[first + 4]) == (found.source[first], found.target[first + 3])


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("synthetic", {"feature_dim": 4}, "below num_classes"),
        ("synthetic", {"feature_accuracy": 0.1}, "not above chance"),
        ("synthetic", {"valid_share": 0.6, "test_share": 0.5}, "something to train on"),
        ("synthetic", {"label_noise": 0.9}, "no more than chance"),
        ("synthetic", {"num_nodes": 20}, "below four a class"),
        ("synthetic_triples", {"num_entities": 150, "num_types": 4}, "num_types 4 leaves 37 entities a type; 40"),
        ("synthetic_triples", {"num_triples": 13_000}, "too many for 40 relations .* of 50 entities: 12480 at most"),
        ("synthetic_triples", {"valid_share": 0.5, "test_share": 0.5}, "must leave something to train on"),
    ],
)
def test_options_that_do_not_fit(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        DATASETS.config({"name": name, **options})


def test_the_most_triples_that_fit_are_distinct(ingest: Ingest) -> None:
    rows = triples(ingest(name="synthetic_triples", num_triples=12_480, noise=0.5))
    assert len(np.unique(rows, axis=0)) == 12_480
