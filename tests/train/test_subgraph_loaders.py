"""Cluster and random partition batches against what the graph's arrays say."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from models.block import Batch
from tasks.sampling.neighborhoods.neighbors import derive_key
from tasks.sampling.rows.features import FeatureSource
from tasks.storage.graph_store import ArrayWriter, GraphStore
from tasks.storage.manifests import PartitionManifest
from tasks.train.loaders.subgraphs.cluster import ClusterLoader, RandomPartitionLoader
from tasks.train.loaders.subgraphs.subgraph import SubgraphLoader
from tests.loaders import make_loader
from tests.support import as_partition, finish, node_graph


def opened(folder: Path, part_offsets: tuple[int, ...] | None = None, **options: Any) -> GraphStore:
    """The planted node graph, as the partition stage would leave it."""
    parent = as_partition(node_graph(folder, **options))
    manifest: PartitionManifest = parent.manifest
    if part_offsets is not None:
        parts = {"part_offsets": part_offsets, "num_parts": len(part_offsets) - 1}
        manifest = manifest.model_copy(update=parts)
    return GraphStore(parent.folder, manifest)


def odd_graph(folder: Path, *, symmetric: bool, num_nodes: int = 12, copies: int = 1) -> GraphStore:
    """A few nodes: a hub, a leaf, a self-loop, a node without edges; edges carry their CSC position as feature.

    Half of the pairs have `copies` edges.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(3)
    src, dst = rng.integers(0, num_nodes - 2, (2, 18))
    hub = np.arange(1, num_nodes - 1)
    src, dst = np.concatenate([src, hub, [4]]), np.concatenate([dst, np.zeros_like(hub), [4]])
    dense = np.zeros((num_nodes, num_nodes), np.int8)
    dense[dst, src] = 1
    if symmetric:
        dense |= dense.T
    dense[num_nodes - 1] = dense[:, num_nodes - 1] = 0
    ends = np.arange(num_nodes)
    dense *= np.where((ends[:, None] + ends) % 2, copies, 1)
    targets, sources = (np.repeat(side, dense[dense > 0]) for side in np.nonzero(dense))
    writer = ArrayWriter(folder)
    writer.write("csc_indptr", np.searchsorted(targets, np.arange(num_nodes + 1)))
    writer.write("csc_indices", sources.astype(np.int32))
    writer.write("edge_feat", np.arange(len(sources), dtype=np.float32)[:, None])
    writer.write("feat", rng.standard_normal((num_nodes, 3)).astype(np.float32))
    writer.write("label", rng.integers(0, 2, num_nodes))
    writer.write("train_idx", np.array([0, 1, 2, 5, 7, 9], np.int32))
    parent = as_partition(
        finish(
            folder,
            writer,
            num_nodes=num_nodes,
            num_edges=len(sources),
            num_classes=2,
            feature_dim=3,
            edge_feature_dim=1,
            symmetric=symmetric,
            splits={"train": 6},
        )
    )
    return GraphStore(parent.folder, parent.manifest)


def features(store: GraphStore, *, edges: bool = False) -> FeatureSource:
    return FeatureSource.open(store, edges=edges)


def clusters(store: GraphStore, per_batch: int = 2, **keys: int) -> ClusterLoader:
    return make_loader("cluster", store, features(store), clusters_per_batch=per_batch, **keys)


def random_partition(store: GraphStore, count: int = 7, **keys: int) -> RandomPartitionLoader:
    return make_loader("random_partition", store, features(store), num_clusters=count, **keys)


def epoch(loader: SubgraphLoader, number: int = 0) -> list[Batch]:
    return [loader.epoch_batch(number, i, derive_key(0, number, i)) for i in range(loader.num_batches)]


def names(batch: Batch) -> np.ndarray:
    return batch.inputs.node_ids.numpy()


def edges(batch: Batch) -> list[tuple[int, int]]:
    """Edges of the batch's block under the nodes' own ids, in the block's order."""
    [block] = batch.blocks
    dst = np.repeat(np.arange(block.num_dst), np.diff(block.indptr.numpy()))
    return list(zip(names(batch)[block.indices.numpy()].tolist(), names(batch)[dst].tolist(), strict=True))


def edges_among(store: GraphStore, nodes: np.ndarray) -> list[tuple[int, int]]:
    """The same, worked out plainly."""
    indptr, indices = store["csc_indptr"], store["csc_indices"]
    members = set(nodes.tolist())
    return [(u, v) for v in nodes.tolist() for u in indices[indptr[v] : indptr[v + 1]].tolist() if u in members]


def check(store: GraphStore, batch: Batch) -> None:
    """A batch is the induced subgraph of its nodes, with their features and the labels of training nodes."""
    nodes = names(batch)
    assert len(set(nodes.tolist())) == len(nodes)
    assert edges(batch) == edges_among(store, nodes)
    assert batch.num_edges == len(edges(batch))
    assert batch.blocks[0].adjacency.symmetric == store.manifest.symmetric
    assert batch.blocks[0].num_src == batch.blocks[0].num_dst == len(nodes)
    assert batch.inputs.feat is not None
    assert np.array_equal(batch.inputs.feat.numpy(), store["feat"][nodes])
    assert batch.rows is not None
    asked = nodes[batch.rows.numpy()]
    assert set(asked.tolist()) == set(nodes.tolist()) & set(store["train_idx"].tolist())
    assert batch.target.tolist() == store["label"][asked].tolist()
    assert batch.num_seeds == len(asked)


def tensors(batch: Batch) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    batch._map(lambda tensor: found.append(tensor) or tensor)  # type: ignore[func-returns-value]
    return found


def same(a: Batch, b: Batch) -> bool:
    return len(tensors(a)) == len(tensors(b)) and all(map(torch.equal, tensors(a), tensors(b)))


OFFSETS = (0, 50, 130, 130, 131, 220, 300)  # a part is empty, one has a single node


def test_clusters_are_whole_parts_joined_with_the_edges_between_them(tmp_path: Path) -> None:
    store = opened(tmp_path, OFFSETS)
    loader = clusters(store)
    assert loader.num_batches == 3  # five parts have nodes
    batches = epoch(loader)
    for batch in batches:
        check(store, batch)
    parts = [set(np.unique(np.searchsorted(OFFSETS, names(batch), side="right") - 1).tolist()) for batch in batches]
    assert sorted(part for group in parts for part in group) == [0, 1, 3, 4, 5]
    assert [len(group) for group in parts] == [2, 2, 1]
    assert sorted(np.concatenate([names(batch) for batch in batches]).tolist()) == list(range(300))
    assert len(clusters(store, 5).epoch_batch(0, 0, 0).blocks[0].indices) == store.manifest.num_edges


def test_random_clusters_hold_every_node_once_in_equal_numbers(tmp_path: Path) -> None:
    store = opened(tmp_path)
    batches = epoch(random_partition(store))
    for batch in batches:
        check(store, batch)
        assert names(batch).tolist() == sorted(names(batch).tolist())
    assert sorted(np.concatenate([names(batch) for batch in batches]).tolist()) == list(range(300))
    assert sorted({len(names(batch)) for batch in batches}) == [42, 43]
    [whole] = epoch(random_partition(store, 1))
    assert whole.num_edges == store.manifest.num_edges


@pytest.mark.parametrize("make", [clusters, random_partition])
def test_epochs_seeds_and_ranks_are_laid_out_differently_and_always_the_same(tmp_path: Path, make: Any) -> None:
    store = opened(tmp_path, tuple(range(0, 301, 10)))

    def layout(number: int = 0, **keys: int) -> list[list[int]]:
        return [names(batch).tolist() for batch in epoch(make(store, **keys), number)]

    first = layout()
    assert first == layout()
    assert all(first != other for other in (layout(1), layout(seed=1), layout(rank=1)))
    loader = make(store)
    for number in (3, 0, 4, 1, 0):  # layouts of older epochs are dropped and made again
        assert [names(batch).tolist() for batch in epoch(loader, number)] == layout(number)
        assert len(loader._layouts) <= 2


@pytest.mark.parametrize("kind", ["cluster", "random"])
def test_a_batch_is_the_same_in_any_order_and_thread(tmp_path: Path, kind: str) -> None:
    store = opened(tmp_path, tuple(range(0, 301, 30)))
    loader: SubgraphLoader = clusters(store) if kind == "cluster" else random_partition(store)
    jobs = [(number, i, derive_key(number, i)) for number in range(3) for i in range(min(3, loader.num_batches))]
    expected = [loader.epoch_batch(*job) for job in jobs]
    with ThreadPoolExecutor(2) as pool:
        again = list(pool.map(lambda job: loader.epoch_batch(*job), jobs[::-1]))[::-1]
    assert all(map(same, expected, again))
    assert not same(expected[0], expected[1])


@pytest.mark.parametrize("symmetric", [False, True])
def test_odd_graphs(tmp_path: Path, symmetric: bool) -> None:
    """Nodes without edges, self-loops, edge features, batches without a training node or without an edge."""
    store = odd_graph(tmp_path, symmetric=symmetric)
    seen: set[tuple[int, int]] = set()
    for count in (1, 3, 12):
        for batch in epoch(
            make_loader("random_partition", store, features(store, edges=True), num_clusters=count, seed=1)
        ):
            check(store, batch)
            feat = batch.blocks[0].edge_feat
            assert feat is not None
            indptr, indices = store["csc_indptr"], store["csc_indices"]
            at = feat[:, 0].numpy().astype(int)
            assert list(zip(indices[at], np.searchsorted(indptr, at, side="right") - 1, strict=True)) == edges(batch)
            seen.add((min(batch.num_seeds, 1), min(batch.num_edges, 1)))
    assert (0, 0) in seen
    assert (1, 1) in seen
