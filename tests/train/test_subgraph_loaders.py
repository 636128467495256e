"""Cluster and random partition batches, and ways of the outermost hop."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from configs.errors import RecipeError
from configs.registry import MODELS
from models.base import GraphModel
from models.block import Batch, aggregate
from tasks.sampling.neighborhoods.neighbors import derive_key
from tasks.sampling.rows.features import FeatureSource, whole_graph
from tasks.storage.graph_facts import graph_facts
from tasks.storage.graph_store import ArrayWriter, GraphStore
from tasks.train.loaders.cluster import ClusterLoader, RandomPartitionLoader, SubgraphLoader
from tasks.train.loaders.neighbor import Neighborhoods, NeighborLoader, choose_first_hop, precomputed_mean
from tests.loaders import make_loader
from tests.ranked_shop import store_of
from tests.support import as_partition, finish, molecule_graph, node_graph, written


def opened(folder: Path, *starts: int, **options: Any) -> GraphStore:
    """The planted node graph, as the partition stage would leave it."""
    return store_of(written(node_graph(folder, **options), *starts))


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
    return store_of(parent)


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
    assert np.array_equal(batch.inputs.feat.numpy(), store["feat"][nodes])
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
    store = opened(tmp_path, *OFFSETS[:-1])
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
    store = opened(tmp_path, *range(0, 300, 10))

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
    store = opened(tmp_path, *range(0, 300, 30))
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
            indptr, indices = store["csc_indptr"], store["csc_indices"]
            at = feat[:, 0].numpy().astype(int)
            assert list(zip(indices[at], np.searchsorted(indptr, at, side="right") - 1, strict=True)) == edges(batch)
            seen.add((min(batch.num_seeds, 1), min(batch.num_edges, 1)))
    assert (0, 0) in seen
    assert (1, 1) in seen


def open_graph(folder: Path, *, features: str = "float32", weights: bool = False) -> GraphStore:
    """A graph whose first node has no in-edges."""
    store = store_of(node_graph(folder, dim=7))
    indptr = np.array(store["csc_indptr"])
    store._open["csc_indices"] = np.array(store["csc_indices"][indptr[1] :])
    store._open["csc_indptr"] = np.maximum(indptr - indptr[1], 0)
    store._open["feat"] = np.array(store["feat"]).astype(features)
    if weights:
        rng = np.random.default_rng(0)
        store._open["edge_weight"] = rng.exponential(1, len(store["csc_indices"])).astype(np.float32)
        store.manifest.arrays["edge_weight"] = store.manifest.arrays["csc_indices"]
    return store


def sources(store: GraphStore, node: int) -> np.ndarray:
    indptr = store["csc_indptr"]
    found: np.ndarray = store["csc_indices"][indptr[node] : indptr[node + 1]]
    return found


def neighbor_loader(store: GraphStore, fanout: tuple[int, ...], first_hop: str, **options: Any) -> NeighborLoader:
    features = FeatureSource(store["feat"], None, dtype=options.pop("dtype", torch.float32))
    found = make_loader("neighbor", store, features, fanout=fanout, first_hop=first_hop, reads_mean=True, **options)
    return found


def make_model(store: GraphStore, **options: Any) -> GraphModel:
    torch.manual_seed(0)
    config = MODELS.config({"name": "graphsage", "hidden_dim": 8, "num_layers": 2, **options})
    return MODELS.create(config, graph_facts(store.manifest)).eval()


def outputs(model: GraphModel, batch: Batch) -> torch.Tensor:
    with torch.no_grad():
        scores: torch.Tensor = model(batch)
    return scores


@pytest.mark.parametrize("aggregator", ["mean", "sum"])
def test_fused_is_sampled_for_the_model(tmp_path: Path, aggregator: str) -> None:
    store = open_graph(tmp_path)
    model = make_model(store, aggregator=aggregator)
    positions = np.arange(0, 150, 4)
    sampled = neighbor_loader(store, (4, 3), "sampled").batch(positions, 5)
    fused = neighbor_loader(store, (4, 3), "fused").batch(positions, 5)
    outer, inner = fused.blocks
    assert fused.num_edges == sampled.num_edges
    assert outer.mean is not None
    assert outer.num_src == outer.num_dst == inner.num_src == len(fused.inputs.node_ids)
    assert torch.equal(outer.indptr, sampled.blocks[0].indptr)
    assert torch.equal(inner.indices, sampled.blocks[1].indices)
    assert torch.equal(fused.target, sampled.target)
    torch.testing.assert_close(outputs(model, fused), outputs(model, sampled), rtol=1e-4, atol=1e-5)
    expected = aggregate(sampled.blocks[0], sampled.inputs.feat, "mean")
    torch.testing.assert_close(outer.mean, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("stored", ["float32", "float16"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_all_ways_agree_on_full_neighbourhoods(tmp_path: Path, stored: str, dtype: torch.dtype) -> None:
    store = open_graph(tmp_path, features=stored)
    positions = np.arange(40)
    fused, precomputed, sampled = (
        neighbor_loader(store, (-1, -1), hop, dtype=dtype).batch(positions, 0)
        for hop in ("fused", "precomputed", "sampled")
    )
    nodes = fused.inputs.node_ids.numpy()
    x = torch.from_numpy(store["feat"].astype(np.float32)).to(dtype)
    for batch in (fused, precomputed):
        outer = batch.blocks[0]
        assert outer.mean.dtype == batch.inputs.feat.dtype == dtype
        assert torch.equal(batch.inputs.feat, x[nodes])
        means = [x[sources(store, v)].double().mean(0) if len(sources(store, v)) else torch.zeros(7) for v in nodes]
        rtol = 1e-5 if dtype == torch.float32 else 1e-2
        torch.testing.assert_close(outer.mean.double(), torch.stack(means).double(), rtol=rtol, atol=1e-6)
        assert outer.degrees.tolist() == [len(sources(store, v)) for v in nodes]
        assert outer.num_edges == sum(len(sources(store, v)) for v in nodes)
        assert batch.num_edges == sampled.num_edges
    assert torch.equal(fused.blocks[0].mean, precomputed.blocks[0].mean)  # type: ignore[arg-type]
    if dtype == torch.float32:
        model = make_model(store)
        block, inputs = whole_graph(store, FeatureSource(store["feat"], None))
        rows = torch.from_numpy(np.asarray(store["train_idx"])[positions].astype(np.int64))
        exact = outputs(model, Batch([block], inputs, torch.empty(0), 40, rows=rows))
        for batch in (fused, precomputed, sampled):
            torch.testing.assert_close(outputs(model, batch), exact, rtol=1e-4, atol=1e-5)


def test_the_mean_hop_leaves_excluded_edges_out(tmp_path: Path) -> None:
    store = open_graph(tmp_path)
    features = FeatureSource(store["feat"], None)
    neighbor = int(sources(store, 9)[0])
    seeds = np.array([9, neighbor], np.int32)
    excluded = np.array([[1], [0]])
    blocks, _ = Neighborhoods(store, features, (-1,), first_hop="fused").around(seeds, 0, excluded)
    left = [v for v in sources(store, 9) if v != neighbor]
    torch.testing.assert_close(blocks[0].mean[0], torch.from_numpy(store["feat"][left].mean(0)), rtol=1e-5, atol=1e-6)
    assert int(blocks[0].indptr[1]) == len(left) == len(sources(store, 9)) - 1


def test_one_layer_needs_no_sampling_when_its_mean_is_known(tmp_path: Path) -> None:
    store = open_graph(tmp_path)
    batch = neighbor_loader(store, (-1,), "precomputed").batch(np.arange(5), 0)
    assert [block.num_dst for block in batch.blocks] == [5]
    assert batch.inputs.node_ids.tolist() == store["train_idx"][:5].tolist()


def test_ranks_and_resumed_runs_share_the_table_of_means(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tasks.train.loaders import neighbor

    store = open_graph(tmp_path / "graph")
    features = FeatureSource(store["feat"], None)
    filled: list[int] = []
    fill = neighbor._fill

    def count(*args: Any) -> None:
        filled.append(1)
        fill(*args)

    monkeypatch.setattr(neighbor, "_fill", count)
    scratch = tmp_path / "work"
    with ThreadPoolExecutor(3) as pool:
        tables = list(pool.map(lambda _: precomputed_mean(store, features, scratch), range(3)))
    assert len(filled) == 1
    assert not tables[0].flags.writeable
    assert all(np.array_equal(table, tables[0]) for table in tables)
    assert not list(scratch.glob("*.part"))
    narrow = precomputed_mean(store, FeatureSource(store["feat"], None, dtype=torch.bfloat16), scratch)
    assert narrow.dtype == np.uint16  # another table, not the float32 one
    part = open_graph(tmp_path / "part")
    part._open["csc_indptr"] = np.zeros_like(part["csc_indptr"])
    part._open["csc_indices"] = part["csc_indices"][:0]
    assert not precomputed_mean(part, features, scratch).any()  # nor that of another graph
    assert len(filled) == 3
    assert np.array_equal(precomputed_mean(store, features, None), tables[0])


def test_which_way_is_taken(tmp_path: Path) -> None:
    plain = FeatureSource(np.zeros((3, 2), np.float32), None)
    categories = FeatureSource(plain.feat, np.zeros((3, 1), np.int32))
    weighted = FeatureSource(plain.feat, None, edge_weight=np.ones(4, np.float32))
    none = FeatureSource(None, None)
    assert choose_first_hop("auto", (3, 2), plain, reads_mean=True) == "fused"
    assert choose_first_hop("auto", (3, 2), plain, reads_mean=False) == "sampled"
    assert choose_first_hop("sampled", (3, 2), plain, reads_mean=True) == "sampled"
    assert choose_first_hop("precomputed", (3, -1), plain, reads_mean=True) == "precomputed"
    for features in (categories, weighted, none):
        assert choose_first_hop("auto", (3, 2), features, reads_mean=True) == "sampled"
        with pytest.raises(RecipeError, match=r"train\.loader\.first_hop=fused hands the first layer a mean"):
            choose_first_hop("fused", (3, 2), features, reads_mean=True)
    with pytest.raises(RecipeError, match=r"fan-out 2 would do nothing; set train\.loader\.fanout=3,-1"):
        choose_first_hop("precomputed", (3, 2), plain, reads_mean=True)
    with pytest.raises(RecipeError, match=r"take train\.loader\.first_hop=auto"):
        choose_first_hop("precomputed", (3, -1), plain, reads_mean=False)
    carrying = FeatureSource(plain.feat, None, np.zeros((4, 2), np.float32))
    with pytest.raises(RecipeError, match=r"reads what edges carry besides; .* or model\.edge_features=false"):
        choose_first_hop("fused", (3, 2), carrying, reads_mean=False)


def test_weights_of_edges_reach_the_model(tmp_path: Path) -> None:
    """The weighted sum that a model takes of a sample expects that over all neighbours."""
    store = open_graph(tmp_path, weights=True)
    features = FeatureSource.of(store, make_model(store, edge_weights=True))
    neighborhoods = Neighborhoods(store, features, (3,))
    seeds = np.arange(20, dtype=np.int32)
    drawn = []
    for key in range(400):
        [block], inputs = neighborhoods.around(seeds, key)
        drawn.append(aggregate(block, inputs.feat, "sum").numpy())
    block, inputs = whole_graph(store, features)
    exact = aggregate(block, inputs.feat, "sum").numpy()[:20]
    error = np.std(drawn, axis=0) / np.sqrt(len(drawn))
    assert (np.abs(np.mean(drawn, axis=0) - exact) < 5 * error + 1e-5 * (1 + np.abs(exact))).all()


def test_sources_open_what_the_model_reads(tmp_path: Path) -> None:
    store = open_graph(tmp_path, weights=True)
    plain = FeatureSource.of(store, make_model(store))
    assert not plain.reads_edges
    weighted = FeatureSource.of(store, make_model(store, edge_weights=True), torch.bfloat16)
    assert weighted.reads_edges
    assert weighted.dtype == torch.bfloat16
    types = FeatureSource.of(store, make_model(store, name="rgcn"))
    assert types.edge_type is not None
    block, _ = whole_graph(store, types)
    assert block.edge_type.tolist() == [0] * block.num_edges
    assert types.node_type is None  # one type
    kinds = np.arange(store.manifest.num_nodes, dtype=np.int16) % 2
    several = replace(types, node_type=kinds)
    nodes = np.array([7, 2, 4], np.int32)
    for inputs in (several.inputs(nodes), whole_graph(store, several)[1]):
        assert torch.equal(inputs.node_type, inputs.node_ids % 2)
    parent = molecule_graph(tmp_path / "molecules")
    molecules = store_of(parent)
    config = MODELS.config({"name": "gin", "hidden_dim": 8, "num_layers": 2})
    source = FeatureSource.of(molecules, MODELS.create(config, graph_facts(molecules.manifest)))
    assert source.edge_feat_cat is not None
    assert source.edge_type is source.edge_weight is None
