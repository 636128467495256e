"""Negatives of link tasks, and batches without their own edges."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from tasks.edge_ends import find_ends, write_ends
from tasks.sampling.links.negatives import NegativeSampler
from tasks.sampling.parts.exchange import Exchange
from tasks.sampling.parts.graph import PartGraph
from tasks.sampling.rows.features import FeatureSource
from tasks.storage.graph_store import ArrayWriter, GraphStore
from tasks.storage.manifests import PartitionManifest
from tasks.train.loaders.links.part_negatives import PartNegatives
from tests.loaders import make_loader
from tests.support import finish, link_graph


def opened(folder: Path, seed: int = 0) -> GraphStore:
    parent = link_graph(folder, seed=seed)
    return GraphStore(parent.folder, parent.manifest)


def small(folder: Path, edges: list[tuple[int, int]], num_nodes: int, *, directed: bool | None = None) -> GraphStore:
    """A directed graph of these edges, all of them for training; `directed`: negatives go by what edges join."""
    src, dst = np.array(edges, np.int32).reshape(-1, 2).T
    matrix = sp.csr_matrix((np.ones(len(src)), (dst, src)), shape=(num_nodes, num_nodes))
    matrix.sort_indices()
    writer = ArrayWriter(folder)
    writer.write("csc_indptr", matrix.indptr.astype(np.int64))
    writer.write("csc_indices", matrix.indices.astype(np.int32))
    writer.write("train_edges", np.array(edges, np.int32).reshape(-1, 2))
    if directed is not None:
        write_ends(find_ends(lambda: iter([(src, dst)]), num_nodes, directed=directed), num_nodes, writer)
    offsets = {"part_offsets": (0, num_nodes), "num_parts": 1, "partitioner": "none", "edge_cut": 0.0}
    balance = {"node_balance": 1.0, "train_balance": 1.0}
    fields: dict[str, Any] = {"task": "link", "symmetric": False, "num_nodes": num_nodes, "num_edges": len(edges)}
    parent = finish(folder, writer, PartitionManifest, **fields, **offsets, **balance)
    return GraphStore(parent.folder, parent.manifest)


def adjacency(store: GraphStore) -> np.ndarray:
    """Whether u -> v is an edge, at [u, v]."""
    indptr, indices = store["csc_indptr"], store["csc_indices"]
    dense = np.zeros((len(indptr) - 1, len(indptr) - 1), bool)
    dense[indices, np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))] = True
    return dense


def positives(store: GraphStore, count: int) -> np.ndarray:
    return np.asarray(store["train_edges"][:count], np.int64)


def test_negatives_are_no_edges_and_depend_on_the_key_alone(tmp_path: Path) -> None:
    store = opened(tmp_path)
    dense, positive = adjacency(store), positives(store, 300)
    sampler = NegativeSampler(store, 3)
    negative = sampler.draw(positive, 5)
    assert negative.shape == (900, 2)
    assert negative.dtype == np.int64
    assert not dense[negative[:, 0], negative[:, 1]].any()
    assert (negative[:, 0] != negative[:, 1]).all()
    assert np.array_equal(negative, NegativeSampler(store, 3).draw(positive, 5))
    assert not np.array_equal(negative, sampler.draw(positive, 6))
    assert sampler.draw(positive[:0], 0).shape == (0, 2)


@pytest.mark.parametrize("turn", [False, True])
def test_negatives_of_purchases_are_a_user_and_an_item(tmp_path: Path, turn: bool) -> None:
    """Sources and targets apart, or rows that name their ends in any order; the last nodes have no edge."""
    users, items = 40, 60
    chosen = np.random.default_rng(0).choice(users * items, 600, replace=False)
    pairs = np.stack([chosen // items, users + chosen % items], 1)
    if turn:
        pairs = np.where(np.arange(600)[:, None] % 3 == 0, pairs[:, ::-1], pairs)
    store = small(tmp_path, [tuple(pair) for pair in pairs.tolist()], users + items + 5, directed=False)
    assert ("edge_side" in store) == turn
    positive = positives(store, 200)
    negative = NegativeSampler(store, 5).draw(positive, 3)
    assert ((negative[:, 0] < users) != (negative[:, 1] < users)).all()
    assert negative.max() < users + items
    assert len(np.unique(negative)) > 90
    graph = PartGraph(store, np.array([0, store.manifest.num_nodes]), Exchange(0, 1))
    sampler = PartNegatives(graph, 5)
    assert np.array_equal(sampler.draw_all([(positive, 3)])[0], negative)


def test_directed_negatives_end_at_nodes_that_are_targets(tmp_path: Path) -> None:
    pairs = [(u, v) for u in range(10, 30) for v in range(u - 10, u - 5)]
    store = small(tmp_path, pairs, 40, directed=True)
    negative = NegativeSampler(store, 20).draw(positives(store, 100), 3)
    assert set(negative[:, 0].tolist()) <= set(range(10, 30))
    assert set(negative[:, 1].tolist()) == set(range(24))


def test_a_source_joined_to_all_nodes_still_gets_negatives(tmp_path: Path) -> None:
    store = small(tmp_path, [(0, v) for v in range(1, 5)] + [(1, 0)], 5)
    negative = NegativeSampler(store, 2).draw(np.array([[0, 1], [0, 2]]), 0)
    assert negative.min() >= 0
    assert negative.max() < 5


@pytest.mark.parametrize("full", [False, True])
def test_loaders_take_edges_with_negatives(tmp_path: Path, full: bool) -> None:
    store = opened(tmp_path)
    loader = make_loader("full_edge" if full else "edge", store, num_negatives=2, **({} if full else {"fanout": (3,)}))
    batch = loader.batch(np.array([4, 9, 70]), key=1)
    assert batch.pairs is not None
    pairs = batch.inputs.node_ids[batch.pairs]
    assert pairs[:, :3].T.tolist() == store["train_edges"][[4, 9, 70]].tolist()
    assert batch.target.tolist() == [1.0] * 3 + [0.0] * 6


def test_a_fused_first_hop_leaves_the_batch_s_own_edges_out(tmp_path: Path) -> None:
    """Everything is drawn (fan-out 400 of 200 nodes), so the mean is known."""
    parent = link_graph(tmp_path, dim=4)
    store = GraphStore(parent.folder, parent.manifest)
    features = FeatureSource.open(store, edges=False)
    loader = make_loader("edge", store, features, fanout=(400,), reads_mean=True)
    batch = loader.batch(np.arange(40), key=3)
    outer = batch.blocks[0]
    assert outer.mean is not None
    assert outer.mean.shape == (outer.num_dst, 4)
    dense = adjacency(store)
    for u, v in store["train_edges"][:40].tolist():
        dense[u, v] = dense[v, u] = False
    nodes = batch.inputs.node_ids.numpy()
    count = dense[:, nodes].sum(0)
    expected = (dense[:, nodes].T @ store["feat"]) / np.maximum(count, 1)[:, None]
    assert np.allclose(outer.mean.numpy(), expected, atol=1e-5)
    assert outer.counts.tolist() == count.tolist()
