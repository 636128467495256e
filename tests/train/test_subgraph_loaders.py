"""Cluster, random partition and GraphSAINT batches against what the graph's arrays say."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from configs.errors import RecipeError
from models.block import Batch, aggregate
from tasks.sampling.neighborhoods.neighbors import derive_key
from tasks.sampling.rows.features import FeatureSource
from tasks.storage.graph_store import ArrayWriter, GraphStore
from tasks.storage.manifests import PartitionManifest
from tasks.train.loaders.subgraphs import saint_draws
from tasks.train.loaders.subgraphs.cluster import ClusterLoader, RandomPartitionLoader
from tasks.train.loaders.subgraphs.saint import SaintLoader
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


@pytest.mark.parametrize("kind", ["cluster", "random", "node", "edge", "walk"])
def test_a_batch_is_the_same_in_any_order_and_thread(tmp_path: Path, kind: str) -> None:
    store = opened(tmp_path, tuple(range(0, 301, 30)))
    loader: SubgraphLoader
    if kind == "cluster":
        loader = clusters(store)
    elif kind == "random":
        loader = random_partition(store)
    else:
        loader = saint(store, kind, 30)
    jobs = [(number, i, derive_key(number, i)) for number in range(3) for i in range(min(3, loader.num_batches))]
    expected = [loader.epoch_batch(*job) for job in jobs]
    got: dict[int, Batch] = {}

    def work(start: int) -> None:
        for number in range(start, len(jobs), 2):
            got[number] = loader.epoch_batch(*jobs[number])

    threads = [threading.Thread(target=work, args=(start,)) for start in (1, 0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(same(expected[number], got[number]) for number in range(len(jobs)))
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


# ---- GraphSAINT


def saint(store: GraphStore, kind: str, size: int, *, edges: bool = False) -> SaintLoader:
    walk = {"walk_length": 2} if kind == "walk" else {}
    return make_loader(f"saint_{kind}", store, features(store, edges=edges), batch_size=size, seed=4, **walk)


@pytest.mark.parametrize("kind", ["node", "edge", "walk"])
def test_saint_batches_are_what_the_draws_reach(tmp_path: Path, kind: str) -> None:
    store = opened(tmp_path)
    loader = saint(store, kind, 40)
    batches = epoch(loader)
    assert len(batches) >= 2
    for batch in batches:
        check(store, batch)
        block = batch.blocks[0]
        assert block.weight is not None
        assert block.weight.dtype == torch.float32
        assert bool((block.weight > 0.999).all())  # one over a probability
        assert block.degrees.tolist() == np.diff(store["csc_indptr"])[names(batch)].tolist()
    found = sum(batch.num_seeds for batch in batches)
    assert 0.75 * loader.num_seeds < found < 1.25 * loader.num_seeds
    [row] = {len(set(names(batch).tolist())) <= {"node": 40, "edge": 80, "walk": 120}[kind] for batch in batches}
    assert row


@pytest.mark.parametrize("copies", [1, 3])
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("kind", ["node", "edge", "walk"])
def test_saint_weights_undo_what_the_draws_prefer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, symmetric: bool, copies: int
) -> None:
    """Over many batches, weighted sums over neighbours and weighted losses come to those of the whole graph."""
    monkeypatch.setattr(saint_draws, "_WALKS_A_NODE", 4000)
    store = odd_graph(tmp_path, symmetric=symmetric, copies=copies)
    loader = saint(store, kind, 3)
    rounds, num_nodes = 3000, store.manifest.num_nodes
    value = torch.arange(1.0, num_nodes + 1).unsqueeze(1)
    times, losses = np.zeros(num_nodes), np.zeros(num_nodes)
    sums = np.zeros(num_nodes)
    for number in range(rounds):
        batch = loader.epoch_batch(0, number, derive_key(9, number))
        nodes = names(batch)
        times[nodes] += 1
        sums[nodes] += aggregate(batch.blocks[0], value[nodes], "sum")[:, 0].numpy()
        assert batch.rows is not None
        assert batch.seed_weight is not None
        losses[nodes[batch.rows.numpy()]] += batch.seed_weight.numpy()
    drawn = times > 0
    assert drawn.sum() >= num_nodes - 2
    p = saint_draws.inclusion(loader.draws.contains, 3)
    assert np.allclose(times / rounds, p, atol=4 * 0.5 / np.sqrt(rounds))
    dense = np.zeros((num_nodes, num_nodes))
    indptr = store["csc_indptr"]
    np.add.at(dense, (np.repeat(np.arange(num_nodes), np.diff(indptr)), store["csc_indices"]), 1)
    exact = dense @ value[:, 0].numpy()
    assert np.allclose(sums[drawn] / times[drawn], exact[drawn], rtol=0.2)
    trained = np.isin(np.arange(num_nodes), store["train_idx"]) & drawn
    assert np.allclose(losses[trained] / rounds, 1 / loader.num_seeds, rtol=0.12)


def test_saint_edges_carry_their_features_and_a_self_loop_its_full_weight(tmp_path: Path) -> None:
    store = odd_graph(tmp_path, symmetric=True)
    loader = saint(store, "walk", 6, edges=True)
    for number in range(5):
        batch = loader.epoch_batch(0, number, number)
        [block] = batch.blocks
        assert block.edge_feat is not None
        assert block.weight is not None
        at = block.edge_feat[:, 0].numpy().astype(int)
        assert store["csc_indices"][at].tolist() == [u for u, _ in edges(batch)]
        assert all(weight == 1 for (u, v), weight in zip(edges(batch), block.weight.tolist(), strict=True) if u == v)


def undirected(folder: Path, pairs: np.ndarray, num_nodes: int) -> GraphStore:
    """These edges (n, 2), both ways; all nodes are for training."""
    folder.mkdir(parents=True, exist_ok=True)
    src, dst = np.concatenate([pairs, pairs[:, ::-1]]).T
    order = np.lexsort((src, dst))
    writer = ArrayWriter(folder)
    writer.write("csc_indptr", np.searchsorted(dst[order], np.arange(num_nodes + 1)))
    writer.write("csc_indices", src[order].astype(np.int32))
    writer.write("label", np.zeros(num_nodes, np.int64))
    writer.write("train_idx", np.arange(num_nodes, dtype=np.int32))
    parent = finish(
        folder, writer, num_nodes=num_nodes, num_edges=2 * len(pairs), num_classes=2, symmetric=True,
        splits={"train": num_nodes},
    )  # fmt: skip
    return GraphStore(parent.folder, parent.manifest)


@pytest.mark.parametrize("leaves", [8, 10, 17, 33])
def test_saint_edges_of_a_star_all_hold_its_centre(tmp_path: Path, leaves: int) -> None:
    """Its probability is 1, and a sum that comes to it may round to more."""
    pairs = np.stack([np.zeros(leaves, np.int64), np.arange(1, leaves + 1)], axis=1)
    loader = saint(undirected(tmp_path, pairs, leaves + 1), "edge", 4)
    assert loader.draws.contains[0] == pytest.approx(1)
    batch = loader.epoch_batch(0, 0, 5)
    assert batch.seed_weight is not None
    assert batch.blocks[0].weight is not None
    assert names(batch)[0] == 0
    assert float(batch.seed_weight[0]) == pytest.approx(1 / loader.num_seeds)
    assert bool(batch.seed_weight.isfinite().all())
    assert bool(batch.blocks[0].weight.isfinite().all())


@pytest.mark.parametrize("kind", ["node", "edge", "walk"])
def test_saint_weights_of_a_single_draw_are_finite(tmp_path: Path, kind: str) -> None:
    """Few of the edges of a dense graph are met by the walks that are counted."""
    loader = saint(undirected(tmp_path, np.argwhere(np.triu(np.ones((40, 40)), 1)), 40), kind, 1)
    for key in range(100):
        weight = loader.epoch_batch(0, 0, key).blocks[0].weight
        assert weight is not None
        assert bool((weight > 0).all() and weight.isfinite().all())
        # a walk goes from the target to the source at once in 1 of 40 x 39
        assert kind != "walk" or bool((weight <= 1.01 * 40 * 39 * loader.draws.contains.max()).all())


def test_saint_on_a_graph_without_edges(tmp_path: Path) -> None:
    writer = ArrayWriter(tmp_path)
    writer.write("csc_indptr", np.zeros(6, np.int64))
    writer.write("csc_indices", np.zeros(0, np.int32))
    writer.write("label", np.zeros(5, np.int64))
    writer.write("train_idx", np.array([1, 3], np.int32))
    parent = finish(tmp_path, writer, num_nodes=5, num_edges=0, num_classes=2, splits={"train": 2})
    store = GraphStore(parent.folder, parent.manifest)
    batch = saint(store, "walk", 4).epoch_batch(0, 0, 1)
    assert batch.num_edges == 0
    assert batch.num_seeds == len(set(names(batch).tolist()) & {1, 3})
    for kind in ("node", "edge"):
        with pytest.raises(RecipeError, match=rf"train\.loader=saint_{kind} draws edges and test has none"):
            saint(store, kind, 4)
