"""Loaders against what they should deliver, worked out plainly from the graph's arrays."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from configs.errors import DataError, RecipeError
from configs.training import TrainConfig
from models.block import Batch, Block
from tasks.sampling.neighborhoods.neighbors import NeighborSampler, derive_key, shuffled
from tasks.sampling.rows.features import FeatureSource
from tasks.sampling.rows.labels import targets
from tasks.storage.graph_facts import graph_facts
from tasks.storage.graph_store import GraphStore
from tasks.train.gradients.steps import make_optimizer, make_scheduler
from tasks.train.job import scaled_learning_rate
from tests.loaders import make_loader
from tests.ranked_shop import store_of
from tests.support import link_graph, molecule_graph, node_graph


def sources(store: GraphStore, node: int) -> list[int]:
    indptr = store["csc_indptr"]
    return store["csc_indices"][indptr[node] : indptr[node + 1]].tolist()


def edges(block: Block, names: np.ndarray) -> list[tuple[int, int]]:
    """Edges of a block under the names of its local numbers."""
    dst = np.repeat(np.arange(block.num_dst), np.diff(block.indptr.numpy()))
    return list(zip(names[block.indices.numpy()].tolist(), names[dst].tolist(), strict=True))


def same(a: Batch, b: Batch) -> bool:
    left: list[torch.Tensor] = []
    right: list[torch.Tensor] = []
    a._map(lambda tensor: left.append(tensor) or tensor)  # type: ignore[func-returns-value]
    b._map(lambda tensor: right.append(tensor) or tensor)  # type: ignore[func-returns-value]
    return len(left) == len(right) and all(torch.equal(x, y) for x, y in zip(left, right, strict=True))


def every_loader(folder: Path) -> dict[str, Any]:
    made: dict[str, Any] = {}
    node, link, graph = (store_of(make(folder / make.__name__)) for make in (node_graph, link_graph, molecule_graph))
    made["neighbor"] = make_loader("neighbor", node, FeatureSource.open(node, edges=True), fanout=(3, 2))
    made["full node"] = make_loader("full", node, FeatureSource.open(node, edges=True))
    made["edge"] = make_loader("edge", link, FeatureSource.open(link, edges=True), fanout=(3, 2), num_negatives=2)
    made["full link"] = make_loader("full_edge", link, FeatureSource.open(link, edges=True), num_negatives=2)
    made["graph"] = make_loader("graph", graph, FeatureSource.open(graph, edges=True))
    return made


def test_neighbor_batches_carry_features_targets_and_true_degrees(tmp_path: Path) -> None:
    store = store_of(node_graph(tmp_path))
    loader = make_loader("neighbor", store, fanout=(4, 3))
    positions = np.random.default_rng(0).permutation(loader.num_seeds)[:25]
    batch = loader.batch(positions, key=11)
    names = batch.inputs.node_ids.numpy()
    seeds = np.sort(store["train_idx"][positions])
    assert batch.rows is None
    assert names[:25].tolist() == seeds.tolist()
    assert batch.target.tolist() == store["label"][seeds].tolist()
    assert np.array_equal(batch.inputs.feat.numpy(), store["feat"][names])
    assert [block.num_dst for block in batch.blocks] == [batch.blocks[1].num_src, 25]
    assert batch.blocks[0].num_src == len(names) == len(set(names.tolist()))
    assert batch.num_edges == sum(block.num_edges for block in batch.blocks)
    for block in batch.blocks:
        assert all(u in sources(store, v) for u, v in edges(block, names))
        expected = [len(sources(store, v)) for v in names[: block.num_src]]
        assert block.degrees.tolist() == expected


def test_a_seed_that_comes_twice_is_sampled_once_and_scored_twice(tmp_path: Path) -> None:
    """Where seeds do not divide over ranks, a share wraps round: a batch may hold a seed twice."""
    store = store_of(node_graph(tmp_path))
    loader = make_loader("neighbor", store, fanout=(4,))
    batch = loader.batch(np.array([7, 2, 7, 0]), key=0)
    assert batch.rows is not None
    assert batch.blocks[0].num_dst == 3
    assert batch.inputs.node_ids[batch.rows].tolist() == store["train_idx"][[7, 2, 7, 0]].tolist()
    assert batch.target.tolist() == store["label"][store["train_idx"][[7, 2, 7, 0]]].tolist()
    assert batch.num_seeds == 4


@pytest.mark.parametrize("kind", ["neighbor", "full node", "edge", "full link", "graph"])
def test_a_batch_is_the_same_in_any_order_and_thread(tmp_path: Path, kind: str) -> None:
    first, second = every_loader(tmp_path / "a")[kind], every_loader(tmp_path / "b")[kind]
    jobs = [(np.arange(start, start + 8), derive_key(5, start)) for start in range(0, 40, 8)]
    expected = [first.batch(*job) for job in jobs]
    got: dict[int, Batch] = {}

    def work(numbers: list[int], loader: Any) -> None:
        for number in numbers:
            got[number] = loader.batch(*jobs[number])

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(work, ([4, 0, 2], [3, 1]), (first, second)))
    assert all(same(expected[number], got[number]) for number in range(5))
    if kind in ("neighbor", "edge", "full link"):
        assert not same(expected[0], first.batch(jobs[0][0], 12345))


@pytest.mark.parametrize("full", [False, True])
def test_link_batches_have_their_positives_first_and_true_negatives(tmp_path: Path, full: bool) -> None:
    store = store_of(link_graph(tmp_path, dim=4))
    features = FeatureSource.open(store, edges=False)
    loader = (
        make_loader("full_edge", store, features, num_negatives=3)
        if full
        else make_loader("edge", store, features, fanout=(-1, 5), num_negatives=3)
    )
    positions = np.array([3, 90, 4, 55])
    batch = loader.batch(positions, key=2)
    assert batch.target.tolist() == [1.0] * 4 + [0.0] * 12
    pairs = batch.inputs.node_ids.numpy()[batch.pairs.numpy()].T
    assert pairs[:4].tolist() == store["train_edges"][positions].tolist()
    for u, v in pairs[4:].tolist():
        assert u != v
        assert u not in sources(store, v)


def test_edge_batches_pass_no_messages_along_their_own_positives(tmp_path: Path) -> None:
    store = store_of(link_graph(tmp_path))
    loader = make_loader("edge", store, fanout=(-1, -1))
    positions = np.arange(0, 60)
    batch = loader.batch(positions, key=0)
    names = batch.inputs.node_ids.numpy()
    own = {tuple(pair) for pair in store["train_edges"][positions].tolist()}
    own |= {(v, u) for u, v in own}
    for block in batch.blocks:
        kept = edges(block, names)
        everything = {(u, int(v)) for v in names[: block.num_dst] for u in sources(store, int(v))}
        assert len(everything & own) >= 60  # there was something to leave out
        assert set(kept) == everything - own
        assert len(kept) == len(set(kept))
        assert len(block.indptr) == block.num_dst + 1
        assert int(block.indptr[-1]) == block.num_edges


def test_graph_batches_are_disjoint_unions(tmp_path: Path) -> None:
    store = store_of(molecule_graph(tmp_path))
    loader = make_loader("graph", store, FeatureSource.open(store, edges=True))
    positions = np.array([9, 0, 31, 4])
    batch = loader.batch(positions, key=0)
    [block] = batch.blocks
    offsets, indptr = store["graph_offsets"], store["csc_indptr"]
    nodes: list[int] = []
    union: list[tuple[int, int]] = []
    rows: list[int] = []
    bounds = [0]
    for graph in store["train_idx"][positions]:
        start = len(nodes)
        first, last = int(offsets[graph]), int(offsets[graph + 1])
        nodes += range(first, last)
        for v in range(first, last):
            union += [(start + u - first, start + v - first) for u in sources(store, v)]
            rows += range(indptr[v], indptr[v + 1])
        bounds.append(len(nodes))
    assert batch.inputs.node_ids.tolist() == nodes
    assert batch.graph_offsets.tolist() == bounds
    assert edges(block, np.arange(len(nodes))) == union
    assert np.array_equal(batch.inputs.feat_cat.numpy(), store["feat_cat"][nodes])
    assert np.array_equal(block.edge_feat_cat.numpy(), store["edge_feat_cat"][rows])
    assert batch.target.tolist() == store["graph_label"][store["train_idx"][positions]].tolist()


def test_full_batches_hold_the_whole_graph_once(tmp_path: Path) -> None:
    store = store_of(node_graph(tmp_path))
    loader = make_loader("full", store)
    first, second = loader.batch(np.array([5, 1]), 0), loader.batch(np.array([2]), 1)
    assert first.blocks[0] is second.blocks[0]  # with it stays what DGL has built
    assert first.block(0) is first.block(2)
    assert set(edges(first.blocks[0], np.arange(300))) == {(u, v) for v in range(300) for u in sources(store, v)}
    assert first.blocks[0].scale is None
    assert first.rows.tolist() == store["train_idx"][[5, 1]].tolist()
    assert first.target.tolist() == store["label"][store["train_idx"][[5, 1]]].tolist()


def test_wide_ids_sample_like_narrow_ones(tmp_path: Path) -> None:
    store = store_of(node_graph(tmp_path))
    indptr, indices = store["csc_indptr"], store["csc_indices"]
    seeds = np.arange(0, 300, 7)
    narrow = NeighborSampler(indptr, indices, (5, 3)).sample(seeds, 1)
    wide = NeighborSampler(indptr, indices.astype(np.int64), (5, 3)).sample(seeds.astype(np.int32), 1)
    assert np.array_equal(narrow[0], wide[0])
    for a, b in zip(narrow[1], wide[1], strict=True):
        assert np.array_equal(a.indices, b.indices)
        assert np.array_equal(a.positions, b.positions)
        assert a.indices.dtype == b.indices.dtype == np.int32
    assert (narrow[0].dtype, wide[0].dtype) == (np.int32, np.int64)


def test_a_table_that_runs_out_starts_over(tmp_path: Path) -> None:
    store = store_of(node_graph(tmp_path))
    seeds = np.arange(20)
    fresh = NeighborSampler(store["csc_indptr"], store["csc_indices"], (3,))
    worn = NeighborSampler(store["csc_indptr"], store["csc_indices"], (3,))
    [state] = (worn.sample(seeds + 100, 0), worn._idle)[1]
    state.base = (1 << 30) - 30
    for key in range(3):
        assert np.array_equal(fresh.sample(seeds, key)[0], worn.sample(seeds, key)[0])
    assert worn._idle == [state]
    assert 0 < state.base < 1000


@pytest.mark.parametrize("n", [1, 2, 17, 1000])
def test_shuffled_is_a_permutation_of_its_key(n: int) -> None:
    order = shuffled(n, 5, np.arange(n))
    assert sorted(order.tolist()) == list(range(n))
    assert np.array_equal(order[n // 2 :], shuffled(n, 5, np.arange(n // 2, n)))
    if n == 1000:
        assert not np.array_equal(order, shuffled(n, 6, np.arange(n)))
        assert abs(np.corrcoef(order, np.arange(n))[0, 1]) < 0.15


def test_keys_differ_in_every_part() -> None:
    keys = {derive_key(*parts) for parts in np.ndindex(6, 6, 6)} | {derive_key(0, 0), derive_key(0)}
    assert len(keys) == 6**3 + 2
    assert all(0 <= key < 2**63 for key in keys)


def test_targets_mark_missing_labels(tmp_path: Path) -> None:
    manifest = node_graph(tmp_path).manifest
    assert targets(manifest, np.array([[2], [-1]])).tolist() == [2, -1]
    several = manifest.model_copy(update={"task_type": "multilabel", "num_tasks": 2})
    marked = targets(several, np.array([[1, -1], [0, 1]]))
    assert torch.equal(torch.isnan(marked), torch.tensor([[False, True], [False, False]]))
    kept = targets(several, np.array([[1.5, -1.0]], np.float32))  # a regression label may well be -1
    assert kept.tolist() == [[1.5, -1.0]]
    with pytest.raises(DataError, match="2 multiclass labels a node; one is supported"):
        graph_facts(manifest.model_copy(update={"num_tasks": 2}))


def test_features_stored_in_half_precision_compute_in_single(tmp_path: Path) -> None:
    half = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float16)
    source = FeatureSource(half, None, None, None)
    inputs = source.inputs(np.array([4, 0, 4]))
    assert inputs.feat.dtype == torch.float32
    assert np.array_equal(inputs.feat.numpy(), half[[4, 0, 4]].astype(np.float32))
    assert inputs.feat_cat is None


def rates(train: TrainConfig, total: int) -> list[float]:
    optimizer = make_optimizer(train, [torch.nn.Parameter(torch.zeros(1))], 1)
    scheduler = make_scheduler(train, optimizer, total)
    seen = []
    for _ in range(total):
        seen.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return seen


def test_schedules() -> None:
    def train(**options: Any) -> TrainConfig:
        return TrainConfig(learning_rate=1.0, **options)

    assert rates(train(), 4) == [1, 1, 1, 1]
    assert rates(train(schedule={"warmup_steps": 4}), 6) == pytest.approx([0.25, 0.5, 0.75, 1, 1, 1])
    assert rates(train(schedule="linear"), 4) == pytest.approx([1, 0.75, 0.5, 0.25])
    assert rates(train(schedule={"name": "linear", "warmup_steps": 2}), 6) == pytest.approx(
        [0.5, 1, 1, 0.75, 0.5, 0.25]
    )
    half = 0.5**0.5
    assert rates(train(schedule="cosine"), 4) == pytest.approx([1, (1 + half) / 2, 0.5, (1 - half) / 2])
    with pytest.raises(RecipeError, match=r"train\.schedule\.warmup_steps=6 leaves nothing of the run's 6 steps"):
        rates(train(schedule={"warmup_steps": 6}), 6)


@pytest.mark.parametrize(
    ("name", "kind"), [("adam", torch.optim.Adam), ("adamw", torch.optim.AdamW), ("sgd", torch.optim.SGD)]
)
def test_steps_in_one_pass_are_torchs_steps(name: str, kind: type[torch.optim.Optimizer]) -> None:
    torch.manual_seed(0)
    start, gradients = torch.randn(3, 7), torch.randn(4, 3, 7)
    mine, plain = torch.nn.Parameter(start.clone()), torch.nn.Parameter(start.clone())
    made = make_optimizer(TrainConfig(optimizer=name, weight_decay=0.1), [mine], 1)  # type: ignore[arg-type]
    assert type(made) is kind
    assert (made.param_groups[0]["fused"], made.param_groups[0]["weight_decay"]) == (True, 0.1)
    options = {key: made.param_groups[0][key] for key in ("lr", "weight_decay")}
    options |= {"momentum": 0.9} if name == "sgd" else {}
    other = type(made)([plain], fused=False, foreach=False, **options)
    for gradient in gradients:
        for optimizer, parameter in ((made, mine), (other, plain)):
            parameter.grad = gradient.clone()
            optimizer.step()
    torch.testing.assert_close(mine, plain, rtol=1e-6, atol=1e-6)
    assert not torch.allclose(mine, start)


def test_learning_rates_by_ranks() -> None:
    scaled = [
        scaled_learning_rate(TrainConfig(learning_rate=0.1, lr_scaling=how), 4)  # type: ignore[arg-type]
        for how in ("none", "sqrt", "linear")
    ]
    assert scaled == pytest.approx([0.1, 0.2, 0.4])
