"""Negatives of link tasks, and graphs without a batch's own edges."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from models.block import Block
from tasks.edge_ends import find_ends, write_ends
from tasks.sampling.links.negatives import NegativeSampler
from tasks.sampling.neighborhoods.lookup import without_pairs
from tasks.sampling.parts.exchange import Exchange
from tasks.sampling.parts.graph import PartGraph
from tasks.sampling.rows.features import FeatureSource
from tasks.storage.graph_store import ArrayWriter, GraphStore
from tasks.storage.manifests import PartitionManifest
from tasks.train.loaders.links.part_negatives import PartNegatives
from tests.loaders import make_loader
from tests.support import finish, link_graph

KINDS = ("uniform", "degree", "in_batch", "per_source")


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


@pytest.mark.parametrize("kind", KINDS)
def test_negatives_are_no_edges_and_depend_on_the_key_alone(tmp_path: Path, kind: str) -> None:
    store = opened(tmp_path)
    dense, positive = adjacency(store), positives(store, 300)
    sampler = NegativeSampler(store, kind, 3)
    negative = sampler.draw(positive, 5)
    assert negative.shape == (900, 2)
    assert negative.dtype == np.int64
    assert not dense[negative[:, 0], negative[:, 1]].any()
    assert (negative[:, 0] != negative[:, 1]).all()
    assert np.array_equal(negative, NegativeSampler(store, kind, 3).draw(positive, 5))
    assert not np.array_equal(negative, sampler.draw(positive, 6))
    own_source = (negative[:, 0] == np.repeat(positive[:, 0], 3)).mean()
    assert own_source == 1 if kind != "uniform" else own_source < 0.1
    if kind == "in_batch":
        few = sampler.draw(positive[:7], 5)
        assert set(few[:, 1].tolist()) <= set(positive[:7, 1].tolist())
    assert sampler.draw(positive[:0], 0).shape == (0, 2)


def test_degree_negatives_follow_the_power_of_the_degree(tmp_path: Path) -> None:
    """Node v has v in-edges, from nodes that are no sources here: nothing is rejected but the source itself."""
    n = 12
    edges = [(n + u, v) for v in range(n) for u in range(v)]
    store = small(tmp_path, edges, 2 * n + 1)
    positive = np.full((60_000, 2), 2 * n, np.int64)  # the last node: without edges
    drawn = np.bincount(NegativeSampler(store, "degree", 1).draw(positive, 3)[:, 1], minlength=2 * n + 1)
    weight = np.diff(store["csc_indptr"]) ** 0.75
    expected = len(positive) * weight / weight.sum()
    assert np.allclose(drawn, expected, atol=4.5 * np.sqrt(expected.max()))
    assert drawn[weight == 0].sum() == 0


def test_in_batch_negatives_take_all_other_targets_alike(tmp_path: Path) -> None:
    store = small(tmp_path, [(0, 1)], 8)
    positive = np.array([[0, 1], [0, 2], [0, 3], [0, 4], [0, 5]])
    negative = NegativeSampler(store, "in_batch", 4000).draw(positive, 1).reshape(5, 4000, 2)
    for i, own in enumerate(positive[:, 1]):
        counts = np.bincount(negative[i, :, 1], minlength=8)
        others = [v for v in (2, 3, 4, 5) if v != own]  # 0 -> 1 is an edge
        assert counts[others].sum() == 4000
        assert np.allclose(counts[others], 4000 / len(others), rtol=0.15)
    alone = NegativeSampler(store, "in_batch", 2000).draw(positive[:1], 1)
    assert set(alone[:, 1].tolist()) == {2, 3, 4, 5, 6, 7}


def test_in_batch_negatives_are_no_positives_where_the_batch_has_a_single_source(tmp_path: Path) -> None:
    """The targets of all others are then its own; nodes of no positive are taken."""
    store = small(tmp_path, [(0, 5), (0, 9), (1, 7)], 40)
    sampler = NegativeSampler(store, "in_batch", 1000)
    negative = sampler.draw(np.array([[0, 5], [0, 9]]), 3)
    assert set(negative[:, 1].tolist()) == set(range(1, 40)) - {5, 9}
    mixed = sampler.draw(np.array([[0, 5], [0, 9], [1, 7]]), 3)
    assert np.isin(mixed[:, 1], [5, 7, 9]).mean() > 0.99  # the batch's own while they will do


@pytest.mark.parametrize("turn", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_negatives_of_purchases_are_a_user_and_an_item(tmp_path: Path, kind: str, turn: bool) -> None:
    """Sources and targets apart, or rows that name their ends in any order; the last nodes have no edge."""
    users, items = 40, 60
    chosen = np.random.default_rng(0).choice(users * items, 600, replace=False)
    pairs = np.stack([chosen // items, users + chosen % items], 1)
    if turn:
        pairs = np.where(np.arange(600)[:, None] % 3 == 0, pairs[:, ::-1], pairs)
    store = small(tmp_path, [tuple(pair) for pair in pairs.tolist()], users + items + 5, directed=False)
    assert ("edge_side" in store) == turn
    positive = positives(store, 200)
    negative = NegativeSampler(store, kind, 5).draw(positive, 3)
    assert ((negative[:, 0] < users) != (negative[:, 1] < users)).all()
    assert negative.max() < users + items
    if kind == "uniform":
        assert len(np.unique(negative)) > 90
    graph = PartGraph(store, np.array([0, store.manifest.num_nodes]), Exchange(0, 1))
    sampler = PartNegatives(graph, kind, 5)
    assert np.array_equal(sampler.draw_all([(positive, 3)])[0], negative)


@pytest.mark.parametrize("kind", KINDS)
def test_directed_negatives_end_at_nodes_that_are_targets(tmp_path: Path, kind: str) -> None:
    pairs = [(u, v) for u in range(10, 30) for v in range(u - 10, u - 5)]
    store = small(tmp_path, pairs, 40, directed=True)
    negative = NegativeSampler(store, kind, 20).draw(positives(store, 100), 3)
    assert set(negative[:, 0].tolist()) <= set(range(10, 30))
    assert set(negative[:, 1].tolist()) == set(range(24))


@pytest.mark.parametrize("kind", KINDS)
def test_a_source_joined_to_all_nodes_still_gets_negatives(tmp_path: Path, kind: str) -> None:
    store = small(tmp_path, [(0, v) for v in range(1, 5)] + [(1, 0)], 5)
    negative = NegativeSampler(store, kind, 2).draw(np.array([[0, 1], [0, 2]]), 0)
    assert negative.min() >= 0
    assert negative.max() < 5


def test_degree_negatives_of_a_graph_without_edges_take_all_nodes_alike(tmp_path: Path) -> None:
    store = small(tmp_path, [], 5)
    negative = NegativeSampler(store, "degree", 4000).draw(np.array([[0, 1]]), 1)
    counts = np.bincount(negative[:, 1], minlength=5)
    assert counts[0] == 0  # the source itself
    assert np.allclose(counts[1:], 1000, rtol=0.15)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("full", [False, True])
def test_loaders_take_the_kind_they_are_told(tmp_path: Path, kind: str, full: bool) -> None:
    store = opened(tmp_path)
    loader = make_loader(
        "full_edge" if full else "edge", store, num_negatives=2, negatives=kind, **({} if full else {"fanout": (3,)})
    )
    batch = loader.batch(np.array([4, 9, 70]), key=1)
    assert batch.pairs is not None
    pairs = batch.inputs.node_ids[batch.pairs]
    assert pairs[:, :3].T.tolist() == store["train_edges"][[4, 9, 70]].tolist()
    assert batch.target.tolist() == [1.0] * 3 + [0.0] * 6
    own_source = (pairs[0, 3:] == pairs[0, :3].repeat_interleave(2)).all()
    assert bool(own_source) == (kind != "uniform")


@pytest.mark.parametrize("sampler", ["uniform", "replace", "labor"])
def test_a_fused_first_hop_leaves_the_batch_s_own_edges_out(tmp_path: Path, sampler: str) -> None:
    """Everything is drawn (fan-out 400 of 200 nodes), so the mean is known."""
    parent = link_graph(tmp_path, dim=4)
    store = GraphStore(parent.folder, parent.manifest)
    features = FeatureSource.open(store, edges=False)
    options: dict[str, Any] = {"sampler": sampler, "reads_mean": True}
    fanout = (400,) if sampler != "replace" else (-1, 5)
    loader = make_loader("edge", store, features, fanout=fanout, **options)
    batch = loader.batch(np.arange(40), key=3)
    outer = batch.blocks[0]
    assert outer.mean is not None
    assert outer.mean.shape == (outer.num_dst, 4)
    if sampler == "replace":
        return
    dense = adjacency(store)
    for u, v in store["train_edges"][:40].tolist():
        dense[u, v] = dense[v, u] = False
    nodes = batch.inputs.node_ids.numpy()
    count = dense[:, nodes].sum(0)
    expected = (dense[:, nodes].T @ store["feat"]) / np.maximum(count, 1)[:, None]
    assert np.allclose(outer.mean.numpy(), expected, atol=1e-5)
    assert outer.counts.tolist() == count.tolist()


@pytest.mark.parametrize("num_layers", [1, 2])
def test_loaders_that_leave_positives_out_agree_in_degrees(tmp_path: Path, num_layers: int) -> None:
    store = opened(tmp_path)
    features = FeatureSource.open(store, edges=False)
    positions = np.arange(5, 90)
    [whole] = make_loader("full_edge", store, features, leave_out_positives=True).batch(positions, key=3).blocks
    for fanout in (-1, 2):
        batch = make_loader("edge", store, features, fanout=(fanout,) * num_layers).batch(positions, key=3)
        block = batch.blocks[0]
        assert torch.equal(block.degrees, whole.degrees[batch.inputs.node_ids])
        if fanout < 0:
            assert torch.equal(block.counts.float(), block.degrees[: block.num_dst])


def edges(block: Block) -> list[tuple[int, int]]:
    dst = np.repeat(np.arange(block.num_dst), np.diff(block.indptr.numpy()))
    return list(zip(block.indices.tolist(), dst.tolist(), strict=True))


def test_full_batches_can_leave_their_own_positives_out(tmp_path: Path) -> None:
    store = opened(tmp_path)
    loader = make_loader("full_edge", store, leave_out_positives=True)
    whole = edges(loader.block)
    loader.block.edge_feat = torch.arange(len(whole), dtype=torch.float32).unsqueeze(1)
    positions = np.arange(5, 90)
    [block] = loader.batch(positions, key=0).blocks
    own = {tuple(pair) for pair in store["train_edges"][positions].tolist()}
    own |= {(v, u) for u, v in own}
    assert edges(block) == [edge for edge in whole if edge not in own]
    assert len(whole) - block.num_edges == len(own)
    assert block.edge_feat is not None
    assert [whole[int(at)] for at in block.edge_feat] == edges(block)
    assert block.counts.sum() == block.num_edges
    assert edges(loader.block) == whole
    assert block.adjacency.symmetric
    assert {(v, u) for u, v in edges(block)} == set(edges(block))
    assert loader.batch(positions, key=0).num_edges == block.num_edges


@pytest.mark.parametrize(
    "pairs", [[], [(0, 1)], [(0, 1), (0, 1), (1, 0)], [(2, 2), (3, 0)], [(3, 2), (1, 3), (0, 1), (2, 2)]]
)
def test_pairs_are_cut_out_both_ways_whether_they_are_edges_or_not(
    tmp_path: Path, pairs: list[tuple[int, int]]
) -> None:
    graph = [(0, 1), (1, 0), (2, 2), (1, 3), (2, 3), (3, 2)]
    store = small(tmp_path, graph, 5)
    indptr, indices, left_out = without_pairs(
        np.asarray(store["csc_indptr"]), np.asarray(store["csc_indices"]), np.array(pairs, np.int64).reshape(-1, 2).T
    )
    rest = set(graph) - set(pairs) - {(v, u) for u, v in pairs}
    assert len(left_out) == len(graph) - len(rest)
    assert indptr[-1] == len(indices) == len(rest)
    found = [(u, v) for v in range(5) for u in indices[indptr[v] : indptr[v + 1]].tolist()]
    assert set(found) == rest
    assert indices.dtype == np.int32


@pytest.mark.parametrize("pairs", [[(0, 1)], [(0, 1), (1, 0), (0, 1)], [(2, 2), (3, 2)], []])
def test_parallel_edges_are_cut_out_all(pairs: list[tuple[int, int]]) -> None:
    """Where edges are not merged a copy that stays would tell of the positive."""
    pairs_there = [(0, 1), (0, 1), (0, 1), (1, 0), (2, 1), (2, 2), (2, 2), (2, 3), (0, 3)]
    graph = sorted(pairs_there, key=lambda edge: edge[::-1])
    sources, targets = np.array(graph, np.int32).T
    whole = np.searchsorted(targets, np.arange(5)).astype(np.int64)
    indptr, indices, left_out = without_pairs(whole, sources, np.array(pairs, np.int64).reshape(-1, 2).T)
    gone = {*pairs, *((v, u) for u, v in pairs)}
    assert left_out.tolist() == [at for at, edge in enumerate(graph) if edge in gone]
    found = [(u, v) for v in range(4) for u in indices[indptr[v] : indptr[v + 1]].tolist()]
    assert found == [edge for edge in graph if edge not in gone]
