"""How ranks share the work: shares, rounds, local graphs, and real ranks on tiny graphs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from configs.errors import DataError, RecipeError
from configs.registry import MODELS, STRATEGIES
from configs.training import TrainConfig
from models.block import Batch, Inputs
from tasks.sampling.rows.features import FeatureSource, whole_graph
from tasks.stage import Parent, run_stage
from tasks.storage.graph_facts import graph_facts
from tasks.storage.graph_store import GraphStore
from tasks.storage.home import Home
from tasks.train.gradients import family as gradients
from tasks.train.gradients.batches import Batches
from tasks.train.loaders.base import Loader
from tasks.train.stage import STAGE
from tasks.train.strategies._local_graph import LocalGraph
from tasks.train.strategies.base import Ranks, Strategy
from tests.loaders import make_loader
from tests.ranked_shop import store_of
from tests.registered import strategies_of
from tests.support import as_partition, link_graph, node_graph, written
from tests.train.in_process import make_job, train_here
from tests.train.test_training import partition, recipe, records
from tests.train.two_processes import run_program


def parts(parent: Parent, num_parts: int) -> Parent:
    """The same graph in parts of consecutive nodes."""
    return written(parent, *(parent.manifest.num_nodes * part // num_parts for part in range(num_parts)))


def strategies(name: str, world_size: int, **options: Any) -> list[Strategy]:
    config = STRATEGIES.config({"name": name, **options})
    return [STRATEGIES.create(config, Ranks(rank, world_size)) for rank in range(world_size)]


class Echo(Loader):
    """Batches that say what they were made from."""

    batch_size = 4

    def __init__(self, num_seeds: int, num_batches: int | None = None) -> None:
        self.num_seeds, self.num_batches = num_seeds, num_batches

    def batch(self, positions: np.ndarray, key: int) -> Any:
        return positions.tolist(), key

    def epoch_batch(self, epoch: int, number: int, key: int) -> Any:
        return epoch, number, key


@pytest.mark.parametrize("name", ["data_parallel", "parallel_epochs"])
@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
@pytest.mark.parametrize(("count", "batch_size"), [(1, 4), (5, 1), (7, 2), (100, 8), (101, 64)])
def test_shares_cover_an_epoch_in_equal_pieces(name: str, world_size: int, count: int, batch_size: int) -> None:
    ranks = strategies(name, world_size)
    [steps] = {rank.steps(count, batch_size) for rank in ranks}
    taken: list[list[int]] = [[] for _ in ranks]
    for step in range(steps):
        shares = [rank.share(count, step, steps) for rank in ranks]
        assert len({len(share) for share in shares}) == 1
        assert 1 <= len(shares[0]) <= batch_size
        for own, share in zip(taken, shares, strict=True):
            own += share.tolist()
    everything = list(range(count))
    if name == "parallel_epochs":
        assert all(own == everything for own in taken)
    else:
        together = [place for own in taken for place in own]
        assert sorted(set(together)) == everything
        assert len(together) < count + steps * world_size


def test_ranks_of_parallel_epochs_take_all_epochs_between_them() -> None:
    ranks = strategies("parallel_epochs", 3)
    assert [[rank.epoch(r) for rank in ranks] for r in range(2)] == [[0, 1, 2], [3, 4, 5]]
    assert ranks[0].epochs_per_round == 3
    manifest: Any = SimpleNamespace(task="node", num_parts=1)
    ranks[0].check(TrainConfig(epochs=6), "neighbor", manifest)
    with pytest.raises(RecipeError, match=r"train\.epochs=20 is no multiple; take 21"):
        ranks[0].check(TrainConfig(epochs=20), "neighbor", manifest)
    with pytest.raises(RecipeError, match="would have all ranks do the same"):
        ranks[0].check(TrainConfig(epochs=6), "full", manifest)


def batches(name: str, world_size: int, loader: Loader, **train: Any) -> list[Batches]:
    config = TrainConfig(**{"epochs": 4, **train})
    return [Batches(loader, strategy, config, seed=7) for strategy in strategies(name, world_size)]


def test_a_batch_depends_on_its_number_only() -> None:
    first, second = batches("data_parallel", 2, Echo(21))
    assert (first.batches_per_round, first.rounds, first.total) == (3, 4, 12)
    forwards = [first.make(n) for n in range(first.total)]
    assert [first.make(n) for n in reversed(range(first.total))] == forwards[::-1]
    for epoch in range(4):  # every seed in every epoch, each epoch in another order
        numbers = range(3 * epoch, 3 * epoch + 3)
        seen = [place for rank in (first, second) for n in numbers for place in rank.make(n)[0]]
        assert set(seen) == set(range(21))
    assert forwards[0] != forwards[3]
    keys = {key for rank in (first, second) for n in range(12) for key in (rank.make(n)[1], rank.dropout_key(n))}
    assert len(keys) == 2 * 12 * 2
    other = Batches(Echo(21), strategies("data_parallel", 2)[0], TrainConfig(epochs=4), seed=8)
    assert other.make(0) != forwards[0]


def test_one_rank_of_parallel_epochs_does_what_it_does_alone() -> None:
    [alone], [also] = batches("data_parallel", 1, Echo(10)), batches("parallel_epochs", 1, Echo(10))
    assert [alone.make(n) for n in range(12)] == [also.make(n) for n in range(12)]
    ranks = batches("parallel_epochs", 2, Echo(10))
    assert [rank.rounds for rank in ranks] == [2, 2]
    orders = [[place for n in range(6) for place in rank.make(n)[0]] for rank in ranks]
    alone_orders = [[place for n in range(3 * e, 3 * e + 3) for place in alone.make(n)[0]] for e in range(4)]
    assert orders == [alone_orders[0] + alone_orders[2], alone_orders[1] + alone_orders[3]]


def test_batches_that_a_loader_makes_are_shared_by_their_numbers() -> None:
    shared = batches("data_parallel", 2, Echo(50, num_batches=6))
    assert shared[0].batches_per_round == 3
    epoch = [rank.make(3 + n) for n in range(3) for rank in shared]
    assert [(number, of) for of, number, _ in epoch] == [(n, 1) for n in range(6)]
    own = batches("parallel_epochs", 2, Echo(50, num_batches=6))
    assert [rank.batches_per_round for rank in own] == [6, 6]
    assert [[rank.make(n)[:2] for n in (0, 5, 6)] for rank in own] == [
        [(0, 0), (0, 5), (2, 0)],
        [(1, 0), (1, 5), (3, 0)],
    ]


def test_accumulating_more_than_an_epoch_is_refused() -> None:
    batches("data_parallel", 2, Echo(21), accumulate_steps=3)
    with pytest.raises(RecipeError, match=r"train\.accumulate_steps=4 is more than the 3 batches"):
        batches("data_parallel", 2, Echo(21), accumulate_steps=4)


# ---- parts of a graph


def dense(store: GraphStore) -> np.ndarray:
    """Adjacency, destination by source."""
    n = store.manifest.num_nodes
    indptr, indices = np.asarray(store["csc_indptr"]), np.asarray(store["csc_indices"])
    return sp.csr_matrix((np.ones(len(indices)), indices, indptr), shape=(n, n)).toarray()


@pytest.mark.parametrize("hops", [0, 1, 2])
def test_a_local_graph_is_the_subgraph_of_own_nodes_and_halo(tmp_path: Path, hops: int) -> None:
    store = store_of(node_graph(tmp_path, num_nodes=301))
    whole = dense(store)
    local = LocalGraph(store, 40, 75, hops)
    reached = np.zeros(301, bool)
    reached[40:75] = True
    for _ in range(hops):
        reached |= whole[reached].any(0)
    assert np.array_equal(local.nodes, np.flatnonzero(reached))
    assert np.array_equal(dense(local), whole[np.ix_(reached, reached)])
    rows = np.diff(local["csc_indptr"])
    assert all(np.all(np.diff(row) > 0) for row in np.split(local["csc_indices"], np.cumsum(rows)[:-1]))
    own = (local.nodes >= 40) & (local.nodes < 75)
    if hops:
        assert np.array_equal(rows[own], whole[40:75].sum(1))  # own nodes have all their in-edges
    assert np.array_equal(local["feat"], store["feat"][local.nodes])
    assert np.array_equal(local["label"], store["label"][local.nodes])
    train = np.asarray(store["train_idx"])
    assert np.array_equal(local.nodes[local["train_idx"]], train[(train >= 40) & (train < 75)])
    assert (local.manifest.num_nodes, local.manifest.num_edges) == (len(local.nodes), rows.sum())
    assert "valid_idx" not in local
    with pytest.raises(KeyError, match="has no array 'valid_idx'"):
        local["valid_idx"]


@pytest.mark.parametrize("name", ["gcn", "sgc", "gin", "graphsage"])
@pytest.mark.parametrize("loader", ["neighbor", "full"])
def test_own_nodes_of_a_part_are_scored_as_in_the_whole_graph(tmp_path: Path, name: str, loader: str) -> None:
    """With as many hops of halo as layers; at the rim in-edges are missing, but counted where they are divided by."""
    parent = parts(node_graph(tmp_path, num_nodes=200), 2)
    whole = store_of(parent)
    strategy = strategies("partition_parallel", 2, halo_hops=2)[1]
    part = strategy.open(whole)
    config = MODELS.config({"name": name, "num_layers": 2, "hidden_dim": 8, "dropout": 0.0})
    model = MODELS.create(config, graph_facts(parent.manifest)).eval()
    block, inputs = whole_graph(whole, FeatureSource.of(whole, model))
    options = {"fanout": (-1, -1)} if loader == "neighbor" else {}
    own = make_loader(loader, part, FeatureSource.of(part, model), model, **options)
    with torch.no_grad():
        expected = model(Batch([block], inputs, torch.empty(0), 0))[part.nodes[np.asarray(part["train_idx"])]]
        batch = strategy.finish(own.batch(np.arange(own.num_seeds), 0))
        scores = model(batch)
    torch.testing.assert_close(scores, expected, rtol=1e-4, atol=1e-5)


def test_a_part_of_a_link_task_holds_the_edges_that_lead_to_it(tmp_path: Path) -> None:
    store = store_of(link_graph(tmp_path))
    edges = np.asarray(store["train_edges"])
    for hops in (0, 1):
        local = LocalGraph(store, 50, 120, hops)
        inside = (edges[:, 1] >= 50) & (edges[:, 1] < 120)
        if not hops:
            inside &= (edges[:, 0] >= 50) & (edges[:, 0] < 120)
        assert np.array_equal(local.nodes[local["train_edges"]], edges[inside])


def test_a_part_without_training_nodes_is_refused(tmp_path: Path) -> None:
    store = store_of(node_graph(tmp_path))
    gap = np.flatnonzero(np.diff(store["train_idx"]) > 1)[0]
    first = int(store["train_idx"][gap]) + 1
    with pytest.raises(DataError, match=r"nothing to train on; set partition\.balance_train=true"):
        LocalGraph(store, first, first + 1, 1)


def test_ranks_of_unequal_parts_take_equally_many_steps_and_seeds(tmp_path: Path) -> None:
    graph = node_graph(tmp_path, num_nodes=200)
    manifest = as_partition(graph).manifest.model_copy(update={"num_parts": 4, "part_offsets": (0, 20, 50, 120, 200)})
    store = GraphStore(graph.folder, manifest)
    ranks = strategies("partition_parallel", 2)
    local = [rank.open(store) for rank in ranks]
    counts = [len(part["train_idx"]) for part in local]
    assert sum(counts) == 100
    assert counts[0] < counts[1]
    [steps] = {rank.steps(count, 16) for rank, count in zip(ranks, counts, strict=True)}
    assert steps == -(-counts[1] // 16)
    shares = [[rank.share(count, s, steps) for s in range(steps)] for rank, count in zip(ranks, counts, strict=True)]
    assert [len(share) for share in shares[0]] == [len(share) for share in shares[1]]
    for count, share in zip(counts, shares, strict=True):
        assert set(np.concatenate(share).tolist()) == set(range(count))
    nodes = torch.tensor([0, 3])
    batch = Batch([], Inputs(nodes), torch.empty(0), 0)
    assert ranks[1].finish(batch).inputs.node_ids.tolist() == local[1].nodes[[0, 3]].tolist()  # type: ignore[attr-defined]


def test_partitions_that_ranks_cannot_share_are_refused(tmp_path: Path) -> None:
    manifest: Any = parts(node_graph(tmp_path), 3).manifest
    [_, rank] = strategies("partition_parallel", 2)
    with pytest.raises(RecipeError, match=r"the partition has 3; set partition\.num_parts=2 or a multiple"):
        rank.check(TrainConfig(), "neighbor", manifest)
    with pytest.raises(RecipeError, match="works with the loaders neighbor, full, edge, full_edge and this is cluster"):
        rank.check(TrainConfig(), "cluster", manifest)
    strategies("partition_parallel", 3)[0].check(TrainConfig(), "neighbor", manifest)


@pytest.mark.parametrize("task", ["node", "link"])
def test_one_rank_of_every_strategy_does_the_same(tmp_path: Path, task: str) -> None:
    graph = partition(tmp_path / "g", task)
    loader = "edge" if task == "link" else "neighbor"
    told = []
    for strategy in strategies_of("gnn"):
        overrides = (f"train.strategy.name={strategy}", f"train.loader={loader}", "train.loader.batch_size=256")
        job = make_job(recipe(task, *overrides, "train.epochs=2"), graph, tmp_path / strategy)
        train_here(job)
        told.append(records(job.work))
    assert len(told) == 4
    assert told[0] == told[1] == told[2] == told[3]


@pytest.mark.parametrize(("loader", "ranks", "warned"), [("full", 2, True), ("full", 1, False), ("neighbor", 2, False)])
def test_ranks_that_all_compute_the_whole_graph_are_warned_of(
    tmp_path: Path, loader: str, ranks: int, warned: bool
) -> None:
    graph = parts(node_graph(tmp_path / "g"), 2)
    said: list[str] = []
    context: Any = SimpleNamespace(message=lambda _: None, warn=said.append)
    overrides = (f"train.num_ranks={ranks}", f"train.loader={loader}")
    gradients.announce(context, recipe("node", *overrides), graph.manifest)
    assert [line.startswith("each of the 2 ranks computes the whole graph") for line in said] == [True] * warned


# ---- real ranks


@pytest.mark.parametrize("strategy", ["parallel_epochs", "partition_parallel"])
def test_two_ranks_learn(tmp_path: Path, home: Home, strategy: str) -> None:
    graph = parts(node_graph(tmp_path / "g", num_nodes=400), 2)
    overrides = ["train.num_ranks=2", "train.epochs=30", f"train.strategy.name={strategy}", "train.eval_every=10"]
    overrides += ["train.accumulate_steps=2", "train.precision=bfloat16", "train.lr_scaling=sqrt"]
    if strategy == "parallel_epochs":
        overrides += ["train.loader=random_partition", "train.loader.num_clusters=4"]
    outcome = run_stage(STAGE, recipe("node", *overrides), {"partition": graph}, home)
    run = outcome.manifest
    assert (run.world_size, run.epochs_run, run.strategy) == (2, 30, strategy)
    lines = records(outcome.folder)
    validated = [line["epoch"] for line in lines if "valid/accuracy" in line]
    assert validated == [10, 20, 30]
    if strategy == "parallel_epochs":
        assert run.rows == 30 * 200  # epochs of the data, each rank one of every two
        assert lines[-1]["step"] == 15 * 2  # rounds x 4 clusters, two a step
    else:
        assert run.rows >= 30 * 200
    assert run.best_metric > 0.5


def test_three_ranks_that_begin_again_add_gradients_in_the_same_order() -> None:
    run_program("tests.train.averaged_ranks", 3)
