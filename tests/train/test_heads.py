"""The heads of learnt vectors: classes, numbers and pairs, and how strong they are."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from configs.errors import DataError
from configs.registry import LOADERS
from tasks.evaluators.metrics import f1_of_columns
from tasks.storage.graph_store import GraphStore
from tasks.train.job import BEST
from tasks.train.loaders.base import SampleData
from tasks.train.node_vectors import heads
from tasks.train.node_vectors.heads import _fit_members, _fit_numbers, best_threshold, fit_head
from tasks.train.state.checkpoint import load_model
from tests.support import ArrayWriter, finish, link_graph, node_graph, written
from tests.train.in_process import make_job
from tests.train.test_tables import recipe, train


def learnt(tmp_path: Path, make_graph: Any = link_graph, **changes: Any) -> tuple[Any, GraphStore]:
    """A model whose vectors are trained, and its graph."""
    job = make_job(recipe(**changes), written(make_graph(tmp_path / "graph")), tmp_path / "work")
    train(job)
    return load_model(job.work / BEST), GraphStore.open(tmp_path / "graph")


def test_heads_fit_numbers_and_skip_missing_labels(tmp_path: Path) -> None:
    """A regression's head is least squares; of several labels each is fitted to the rows that have it."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(200, 6, generator=generator)
    y = x @ torch.randn(6, 2, generator=generator) + 3
    y[:50, 1] = torch.nan
    weight, bias = _fit_numbers(x, y, 1e6)
    assert torch.allclose(x @ weight + bias, torch.where(y.isnan(), x @ weight + bias, y), atol=1e-3)
    members = torch.where(y.isnan(), y, (y > 3).float())
    weight, bias = _fit_members(x, members, 10.0)
    right = ((x @ weight + bias) > 0) == (members > 0.5)
    assert right[~y.isnan()].float().mean() > 0.95


def test_a_head_takes_the_best_strength(tmp_path: Path) -> None:
    model, store = learnt(tmp_path, node_graph)
    scores = iter([0.1, 0.5, 0.4, float("nan"), 0.5])
    assert fit_head(model, store, None, lambda: next(scores)) == 0.1
    assert fit_head(model, store, 7.0, None) == 7.0
    assert fit_head(model, store, None, None) == 1.0


def test_a_head_of_rare_labels_predicts_some_of_them(tmp_path: Path) -> None:
    """The scores move as a whole: the order of rows is the same, and F1 is not 0."""
    model, plain = learnt(tmp_path, node_graph)
    nodes, labels = plain.manifest.num_nodes, model.facts.out_dim
    model.head.linear.bias.data.zero_()
    label = (np.random.default_rng(0).random((nodes, labels)) < 0.1).astype(np.float32)
    changes = {"task_type": "multilabel", "num_tasks": labels}
    arrays = {name: array for name, array in plain.manifest.arrays.items() if name != "label"}
    store = GraphStore(plain.folder, plain.manifest.model_copy(update={**changes, "arrays": arrays}))
    held = np.asarray(store["valid_idx"], np.int64)
    with pytest.MonkeyPatch.context() as patch:
        inner = GraphStore.__getitem__
        patch.setattr(GraphStore, "__getitem__", lambda self, name: label if name == "label" else inner(self, name))
        found = []
        for for_f1 in (False, True):
            fit_head(model, store, 0.1, None, for_f1=for_f1)
            found.append(model.head.linear(model.table[torch.from_numpy(held)].float()).detach().numpy())
    assert np.ptp(found[1] - found[0]) < 1e-4
    low, high = (f1_of_columns(label[held], scores > 0, "micro") for scores in found)
    assert low < 0.05 < high


def test_the_threshold_of_label_columns_is_the_best_for_micro_f1() -> None:
    """Against every threshold there is, with missing labels, ties, and labels so rare that none is above a half."""
    torch.manual_seed(0)
    for missing, places in ((0.0, 9), (0.2, 9), (0.2, 1)):
        scores = (torch.randn(200, 6) - 3).mul(10**places).round().div(10**places)
        truth = (torch.rand(200, 6) < (scores + 1.5).sigmoid()).float()
        truth[torch.rand(200, 6) < missing] = float("nan")

        def f1(threshold: float, scores: Any = scores, truth: Any = truth) -> float:
            return f1_of_columns(truth.numpy(), (scores > threshold).numpy(), "micro")

        found = f1(best_threshold(scores, truth))
        assert found == pytest.approx(max(f1(float(score) - 1e-5) for score in scores.ravel().unique()))
        assert found > f1(0.0) + 0.1
    assert best_threshold(torch.ones(3, 2), torch.zeros(3, 2)) == 0.0
    few = scores[:3, :2]
    assert f1_of_columns(np.ones((3, 2)), (few > best_threshold(few, torch.ones(3, 2))).numpy(), "micro") == 1


def test_a_head_of_pairs_takes_the_best_of_all_epochs(tmp_path: Path) -> None:
    """Bad epochs end nothing, the best one's weights stay, and the last step hardly moves them: the rate falls to 0."""
    of_pairs = {"model": {"score": "mlp", "mlp_epochs": 9}, "evaluate": {"evaluator": "rocauc"}}
    model, store = learnt(tmp_path, train={"samples": 2e5}, **of_pairs)
    seen: list[torch.Tensor] = []

    def score() -> float:
        seen.append(model.head.mlp[2].weight.detach().clone())
        return [0.3, *[0.2] * 6, 0.4, 0.1][len(seen) - 1]

    fit_head(model, store, None, score)
    assert len(seen) == 9
    assert torch.equal(model.head.mlp[2].weight, seen[7])
    moved = [float((after - before).norm()) for before, after in itertools.pairwise(seen)]
    assert moved[-1] < moved[0] / 2
    fit_head(model, store, None, None)
    assert torch.equal(model.head.mlp[2].weight, seen[8])


def test_negatives_of_a_head_of_pairs_are_no_training_edges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, store = learnt(tmp_path, model={"score": "mlp", "mlp_epochs": 1}, train={"samples": 1e4})
    read: list[set[tuple[int, int]]] = []
    products = heads._products

    def spy(table: Any, pairs: Any) -> Any:
        read.append({(min(pair), max(pair)) for pair in pairs.tolist()})
        return products(table, pairs)

    monkeypatch.setattr(heads, "_products", spy)
    fit_head(model, store, None, None)
    edges = {(min(pair), max(pair)) for pair in store["train_edges"].tolist()}
    of_scale, positive, drawn = read
    assert of_scale == positive == edges
    assert len(drawn) > 0.8 * len(edges)
    assert not drawn & edges


def test_a_logistic_head_of_pairs_knows_training_edges_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Held-out edges are among its negatives as often as by chance."""
    model, store = learnt(tmp_path, train={"samples": 1e4})
    ends: list[Any] = []
    rows = heads._rows

    def spy(model: Any, nodes: Any) -> Any:
        ends.append(nodes)
        return rows(model, nodes)

    monkeypatch.setattr(heads, "_rows", spy)
    fit_head(model, store, 1.0, None)
    pairs = [(min(pair), max(pair)) for pair in np.stack(ends, 1).tolist()]
    trained, held_out = (
        {(min(pair), max(pair)) for split in splits for pair in store[f"{split}_edges"].tolist()}
        for splits in (("train",), ("valid", "test"))
    )
    positive, drawn = pairs[: len(trained)], pairs[len(trained) :]
    assert set(positive) == trained
    assert not set(drawn) & trained
    expected = len(drawn) * len(held_out) / (200 * 199 / 2 - len(trained))
    assert len([pair for pair in drawn if pair in held_out]) == pytest.approx(expected, rel=0.5)


@pytest.mark.parametrize("task", ["node", "link"])
def test_a_table_in_a_file_beyond_memory_gives_the_same_head(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: str
) -> None:
    """Its rows are read in parts, page by page where little memory is free, and come back in their order."""
    graph = written((node_graph if task == "node" else link_graph)(tmp_path / "graph"))
    asked = recipe(train={"samples": 1e5, "strategy": {"blocks": 4, "memory": 12_000}})
    whole, parts = (make_job(asked, graph, tmp_path / name) for name in ("whole", "parts"))
    train(whole)
    monkeypatch.setattr("tasks.train.node_vectors.heads._ROWS_A_READ", 7)
    monkeypatch.setattr("tasks.processes.mapped.available_bytes", lambda: 0)
    train(parts)
    states = [torch.load(job.work / BEST, weights_only=True)["model"] for job in (whole, parts)]
    for key, tensor in states[0].items():
        assert torch.equal(tensor, states[1][key]), key


def graph(folder: Path, weight: list[float] | None, ends: tuple[list[int], list[int]]) -> GraphStore:
    """A directed graph of four nodes with an edge from 0 to 1 and one from 1 to 2, or what `ends` has instead."""
    writer = ArrayWriter(folder)
    writer.write("csr_indptr", np.array(ends[0]))
    writer.write("csr_indices", np.array(ends[1], np.int32))
    writer.write("csr_eids", np.arange(len(ends[1])))
    if weight is not None:
        writer.write("edge_weight", np.array(weight, np.float32))
    made = finish(folder, writer, num_nodes=4, num_edges=len(ends[1]), symmetric=False)
    return GraphStore(made.folder, made.manifest)


_TWO_EDGES = [0, 1, 2, 2, 2], [1, 2]
_NONE = [0, 0, 0, 0, 0], []


@pytest.mark.parametrize("loader", ["walks", "edges"])
@pytest.mark.parametrize(
    ("weight", "ends", "message"),
    [
        ([1.0, -1.0], _TWO_EDGES, "edge weights must be finite and none below 0; .*train.loader.edge_weights=false"),
        ([1.0, float("nan")], _TWO_EDGES, "edge weights must be finite and none below 0"),
        ([0.0, 0.0], _TWO_EDGES, "train.loader.edge_weights=false"),
        (None, _NONE, "look at preprocess and at components.keep"),
    ],
)
def test_graphs_without_an_edge_to_take_are_refused(
    tmp_path: Path, loader: str, weight: Any, ends: Any, message: str
) -> None:
    store = graph(tmp_path, weight, ends)
    with pytest.raises(DataError, match=f"test: .*{message}"):
        LOADERS.create(LOADERS.config(loader), SampleData(store, 5))


@pytest.mark.parametrize("loader", ["walks", "edges"])
def test_weights_that_are_left_alone_may_be_anything(tmp_path: Path, loader: str) -> None:
    store = graph(tmp_path, [1.0, -1.0], _TWO_EDGES)
    made: Any = LOADERS.create(LOADERS.config({"name": loader, "edge_weights": False}), SampleData(store, 5))
    pairs = np.empty((2, made.room), np.int32)
    count = made.fill(0, *pairs)
    assert count > 0
    assert set(np.unique(pairs[:, :count])) <= {0, 1, 2}
