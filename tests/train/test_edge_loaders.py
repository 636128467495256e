"""Link tasks: negatives, batches without their own edges, and features of edges."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from configs.errors import DataError
from configs.load import build_recipe
from configs.registry import MODELS as MODEL_CLASSES
from configs.schema import Recipe
from flows.commands.recipes.data_check import check_data
from tasks.apply.model.needs import check_facts
from tasks.components.stage import STAGE as COMPONENTS
from tasks.edge_ends import find_ends, write_ends
from tasks.evaluators.metrics import average_precision
from tasks.inference.predictor import Predictor
from tasks.ingest.stage import STAGE as INGEST
from tasks.kinds.of import predict
from tasks.partition.stage import STAGE as PARTITION
from tasks.preprocess.stage import STAGE as PREPROCESS
from tasks.sampling.negatives import NegativeSampler
from tasks.sampling.parts.graph import PartGraph
from tasks.sampling.parts.ranges import Exchange
from tasks.sampling.rows.features import FeatureSource
from tasks.stage import Listener, run_stage
from tasks.storage.graph_facts import graph_facts
from tasks.storage.graph_store import ArrayWriter, GraphStore
from tasks.storage.home import Home
from tasks.storage.manifests import PartitionManifest
from tasks.train.families import unread_edge_features
from tasks.train.job import BEST
from tasks.train.loaders.edge import PartNegatives
from tasks.train.state.checkpoint import load_model
from tests.loaders import make_loader
from tests.ranked_shop import store_of
from tests.support import finish, link_graph
from tests.train.in_process import make_engine, make_job, own_settings, run_engine


def opened(folder: Path, seed: int = 0) -> GraphStore:
    parent = link_graph(folder, seed=seed)
    return store_of(parent)


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
    return store_of(parent)


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


def test_a_fused_first_hop_leaves_the_batch_s_own_edges_out(tmp_path: Path) -> None:
    """Everything is drawn (fan-out 400 of 200 nodes), so the mean is known."""
    store = store_of(link_graph(tmp_path, dim=4))
    features = FeatureSource.open(store, edges=False)
    loader = make_loader("edge", store, features, fanout=(400,), reads_mean=True)
    batch = loader.batch(np.arange(40), key=3)
    outer = batch.blocks[0]
    assert outer.mean.shape == (outer.num_dst, 4)
    dense = adjacency(store)
    for u, v in store["train_edges"][:40].tolist():
        dense[u, v] = dense[v, u] = False
    nodes = batch.inputs.node_ids.numpy()
    count = dense[:, nodes].sum(0)
    expected = (dense[:, nodes].T @ store["feat"]) / np.maximum(count, 1)[:, None]
    assert np.allclose(outer.mean.numpy(), expected, atol=1e-5)
    assert outer.counts.tolist() == count.tolist()


NODES, EDGES = 1000, 4000
MODELS = ("graphsage", "gcn", "gat", "gatv2", "gin")


def save_payments() -> dict[str, Any]:
    """Write accounts and payments; an account is bad that often gets large ones, or ones of the kind `voucher`.

    Its own features, and with whom it has to do, say nothing.
    """
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, NODES, (2, EDGES))
    bad = rng.random(NODES) < 0.15
    suspicious = bad[dst] & (rng.random(EDGES) < 0.7)
    amount = rng.standard_normal(EDGES) + 3 * suspicious
    kind = np.where(suspicious & (rng.random(EDGES) < 0.5), "voucher", rng.choice(["card", "cash"], EDGES))
    lines = [f"{u},{v},{a:.4f},{k}" for u, v, a, k in zip(src, dst, amount, kind, strict=True)]
    Path("e.csv").write_text("\n".join(["src,dst,amount,kind", *lines]) + "\n")
    noise = rng.standard_normal((NODES, 2))
    lines = [f"{i},{x:.4f},{y:.4f},{int(b)}" for i, ((x, y), b) in enumerate(zip(noise, bad, strict=True))]
    Path("n.csv").write_text("\n".join(["id,x,y,bad", *lines]) + "\n")
    return {
        "name": "tables",
        "task_type": "binary",
        "metric": "ap",
        "directed": True,
        "nodes": {"files": "n.csv", "id": "id", "features": ["x", "y"], "label": "bad"},
        "edges": {"files": "e.csv", "features": ["amount"], "categorical": ["kind"]},
    }


def recipe_of(dataset: dict[str, Any], model: str, **options: Any) -> Recipe:
    heads = {"heads": 2} if model.startswith("gat") else {}
    sections = {
        "name": "payments",
        "dataset": dataset,
        "preprocess": {"symmetrize": False, "deduplicate": False},
        "model": {"name": model, "hidden_dim": 16, "num_layers": 2, "dropout": 0.0, **heads, **options},
        "train": {"epochs": 40, "threads": 1, "device": "cpu", "learning_rate": 0.02, "loader": "full"},
    }
    return build_recipe(sections)


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("payments"))
        home, recipe = Home.open(Path("home")), recipe_of(save_payments(), "gcn")
        done = run_stage(INGEST, recipe, {}, home)
        for stage in (PREPROCESS, COMPONENTS, PARTITION):
            done = run_stage(stage, recipe, {stage.parents[0]: done.parent}, home)
        yield done.parent


def test_average_precision(graph: Any, tmp_path: Path) -> None:
    store = store_of(graph)

    def measured(model: str, **options: Any) -> float:
        recipe = recipe_of({"name": "synthetic"}, model, **options)
        with own_settings():
            job = make_job(recipe, graph, tmp_path / f"{model}{options}")
            run_engine(make_engine(job))
        found = predict(Predictor(store), load_model(job.work / BEST), "test")
        return average_precision(found.label[:, 0], found.scores[:, 0])

    with_edges = {model: measured(model) for model in MODELS}
    without = {model: measured(model, edge_features=False) for model in MODELS if model != "gin"}
    assert min(with_edges.values()) > 0.8
    assert max(without.values()) < 0.35


@pytest.mark.parametrize(
    ("model", "options", "is_told"),
    [
        ("graphsage", {}, False),
        ("gatv2", {"edge_features": False}, False),
        ("gin", {}, False),
        ("rgcn", {}, True),
        ("mlp", {}, True),
        ("dgl", {"conv": "GraphConv"}, True),
        ("dgl", {"conv": "GINEConv"}, False),
    ],
)
def test_who_reads_none_is_told(graph: Any, model: str, options: dict[str, Any], is_told: bool) -> None:
    told = unread_edge_features(recipe_of({"name": "synthetic"}, model, **options), graph.manifest)
    assert (told is not None) == is_told
    if told is not None:
        assert told.startswith(f"edges carry features (numbers: 1, categories: 1), and model.name={model} reads none")


def test_check_tells_it(tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    dataset = save_payments()
    for model, count in (("mlp", 1), ("gat", 0)):
        found = check_data(recipe_of(dataset, model), home, Listener())
        assert found.ok
        assert sum("reads none of them" in text for text in found.warnings) == count


@pytest.mark.parametrize("name", ["graphsage", "gat", "gin"])
def test_a_model_that_learnt_without_edge_features_needs_none(graph: Any, name: str) -> None:
    """It scores a newer graph whose edges carry some; one that learnt with others does not."""
    store, config = store_of(graph), recipe_of({"name": "synthetic"}, name).model
    facts = graph_facts(graph.manifest)
    plain = MODEL_CLASSES.get(name)(config, replace(facts, edge_feature_dim=0, edge_categories=()))
    check_facts(plain, graph.manifest)
    assert Predictor(store).node_scores(plain, np.arange(5)).shape == (5, 1)
    other = MODEL_CLASSES.get(name)(config, replace(facts, edge_feature_dim=3))
    with pytest.raises(DataError, match="edge_feature_dim=3"):
        check_facts(other, graph.manifest)
