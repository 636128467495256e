"""Vectors by relation: what is drawn, what is learnt, and that a training goes on where it was killed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from configs.errors import DataError, RecipeError
from configs.load import build_recipe, load_recipe
from models.kernels.tables.row_tables import RowTable
from tasks.components.stage import STAGE as COMPONENTS
from tasks.evaluators.several import make_evaluator
from tasks.inference.predictor import Predictor
from tasks.ingest.stage import STAGE as INGEST
from tasks.kinds.of import predict
from tasks.partition.stage import STAGE as PARTITION
from tasks.preprocess.stage import STAGE as PREPROCESS
from tasks.stage import Parent, run_stage
from tasks.storage.graph_store import GraphStore
from tasks.storage.home import Home
from tasks.train.job import BEST
from tasks.train.multiplex import family
from tasks.train.multiplex.engine import RelationEngine
from tasks.train.multiplex.relations import drawn_neighbors, relation_graphs
from tasks.train.multiplex.vectors import pair_slopes
from tasks.train.state.checkpoint import load_model
from tasks.train.strategies.base import Ranks
from tests.support import as_partition, link_graph, multiplex_graph
from tests.train.in_process import make_job, run_job


def recipe(**train: Any) -> Any:
    return build_recipe(
        {
            "name": "multiplex",
            "dataset": {"name": "synthetic", "task": "link"},
            "model": {"name": "gatne", "dim": 12, "edge_dim": 3, "attention_dim": 5, "neighbors": 4},
            "train": {
                "learning_rate": 0.03,
                "pair_rate": 0.1,
                "loader": {"length": 8, "window": 2},
                "walks": 10,
                "batch_size": 1000,
                "epochs": 3,
                **train,
            },
            "evaluate": {"evaluator": "rocauc"},
        }
    )


def test_relations_are_told_apart(tmp_path: Path) -> None:
    parent = multiplex_graph(tmp_path)
    store = GraphStore(parent.folder, parent.manifest)
    train, relation = store["train_edges"], store["train_relation"]
    graphs = relation_graphs(store)
    for number, graph in enumerate(graphs):
        own = train[relation == number].tolist()
        expected = {(a, b) for a, b in own} | {(b, a) for a, b in own}
        ends = np.repeat(np.arange(len(graph.indptr) - 1), np.diff(graph.indptr))
        assert set(zip(ends.tolist(), graph.indices.tolist(), strict=True)) == expected
        assert len(graph.indices) == len(expected)
    nodes = np.arange(150)
    drawn = drawn_neighbors(graphs, nodes, 400, np.random.default_rng(0))
    for number, graph in enumerate(graphs):
        for node in nodes:
            near = graph.indices[graph.indptr[node] : graph.indptr[node + 1]].tolist()
            assert set(drawn[node, number].tolist()) == set(near or [node])


@pytest.mark.parametrize(("repeated", "rate", "tolerance"), [(False, 0.5, 1e-5), (True, 1e-3, 0.02)])
def test_slopes_of_pairs_are_the_gradient_of_the_loss(repeated: bool, rate: float, tolerance: float) -> None:
    """Where no row is met twice; else at a small rate, where pairs hardly move what the next ones read."""
    rng = np.random.default_rng(0)
    vectors, contexts = (rng.normal(size=(rows, 13)).astype(np.float32) for rows in (9, 41))
    table = RowTable.zeros(*contexts.shape)
    table.write(slice(None), contexts)
    if repeated:
        centres, drawn = rng.integers(0, 9, 40), rng.integers(0, 41, (40, 4))
    else:
        centres, drawn = rng.permutation(9), rng.permutation(41)[:36].reshape(9, 4)
    centres, drawn = centres.astype(np.int32), drawn.astype(np.int32)
    others, negatives = drawn[:, 0].copy(), drawn[:, 1:].copy()
    found = pair_slopes(vectors, table, centres, others, negatives, rate)
    v, c = (torch.from_numpy(x).double().requires_grad_() for x in (vectors, contexts))
    loss = torch.zeros((), dtype=torch.float64)
    for i in range(len(centres)):
        loss = loss - torch.nn.functional.logsigmoid(v[centres[i]] @ c[others[i]])
        for k in range(3):
            loss = loss - torch.nn.functional.logsigmoid(-v[centres[i]] @ c[negatives[i, k]])
    loss.backward()
    for one, slope in ((found, v.grad), ((contexts - table.read()) / rate, c.grad)):
        assert slope is not None
        assert np.linalg.norm(one - slope.numpy()) < tolerance * np.linalg.norm(slope.numpy())


def test_it_learns_and_scores_pairs_in_their_relation(tmp_path: Path) -> None:
    graph = as_partition(multiplex_graph(tmp_path / "graph"))
    (graph.folder / "manifest.json").write_text(graph.manifest.model_dump_json())
    job = make_job(recipe(), graph, tmp_path / "work")
    result = run_job(job, None)
    assert result["best_metric"] > 0.57  # communities alone would give 0.72
    model = load_model(job.work / BEST)
    store = GraphStore.open(graph.folder)
    prediction = predict(Predictor(store), model, "test")
    assert [relation for relation, _ in prediction.by_relation()] == [0, 1]
    table = model.table.view(150, 2, 12)
    pairs, relation = store["test_edges"], store["test_relation"]
    expected = torch.nn.functional.cosine_similarity(
        table[pairs[:, 0].astype(np.int64), relation.astype(np.int64)],
        table[pairs[:, 1].astype(np.int64), relation.astype(np.int64)],
    )
    np.testing.assert_allclose(prediction.positive, expected.numpy(), atol=1e-6)


def test_vectors_read_all_neighbors(tmp_path: Path) -> None:
    """At the end, whatever is drawn while training."""
    graph = as_partition(multiplex_graph(tmp_path / "graph"))
    (graph.folder / "manifest.json").write_text(graph.manifest.model_dump_json())
    engine = RelationEngine(make_job(recipe(), graph, tmp_path / "work"), Ranks())
    rows, found = engine.rows, engine.rows.vectors().view(150, 2, 12)
    for node in (0, 7, 149):
        near = []
        for number, one in enumerate(rows.graphs):
            others = one.indices[one.indptr[node] : one.indptr[node + 1]].tolist() or [node]
            near.append(torch.stack([rows.lent[other * 2 + number] for other in others]).mean(0))
        for relation in (0, 1):
            bounds = [0] * (relation + 1) + [1] * (2 - relation)
            expected = rows.mixing(rows.base[node : node + 1], torch.stack(near)[None], bounds)[0]
            torch.testing.assert_close(found[node, relation], expected)


def test_what_it_is_not_for_is_refused(tmp_path: Path) -> None:
    plain = as_partition(link_graph(tmp_path / "plain"))
    told: Any = type("Context", (), {"message": print})
    with pytest.raises(RecipeError, match="relation_column"):
        family.announce(told, recipe(), plain.manifest)
    with pytest.raises(RecipeError, match="num_ranks=1"):
        recipe(num_ranks=2)
    graph = as_partition(multiplex_graph(tmp_path / "graph"))
    empty = graph.manifest.model_copy(
        update={"num_relations": 3, "edge_types": (*graph.manifest.edge_types, "node__a__node")}
    )
    (graph.folder / "manifest.json").write_text(empty.model_dump_json())
    with pytest.raises(DataError, match="relation a has no edge"):
        RelationEngine(make_job(recipe(), type(graph)(empty, graph.folder), tmp_path / "work"), Ranks())


@pytest.mark.slow
def test_amazon_as_published(shared_data: Path, tmp_path: Path) -> None:
    """Test ROC-AUC 0.9744 in GATNE's paper, the mean over both relations; here after one epoch of walks."""
    folder = shared_data / "multiplex" / "amazon"
    if not folder.is_dir():
        pytest.skip("no data set of several relations here")
    asked = load_recipe("benchmarks/recipes/amazon-multiplex.yaml", ["train.epochs=1"])
    parents: dict[str, Parent] = {}
    home = Home(tmp_path / "home")
    for stage in (INGEST, PREPROCESS, COMPONENTS, PARTITION):
        outcome = run_stage(stage, asked, parents, home)
        parents[stage.name] = Parent(outcome.manifest, outcome.folder)
    job = make_job(asked, parents["partition"], tmp_path / "work")
    run_job(job, None)
    prediction = predict(Predictor(GraphStore.open(job.graph)), load_model(job.work / BEST), "test")
    found = make_evaluator(asked.evaluate.evaluator, parents["partition"].manifest)(prediction)
    assert found["rocauc"] > 0.97
