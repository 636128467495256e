"""Features of entities and relations in knowledge graphs: what a learnt map adds to rows, and what that is good for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from models.kernels.tables.row_layout import UpdateRule
from tasks.inference.triples import TripleSplits
from tasks.ranking.entities import TableBlocks
from tasks.ranking.triples import TripleRanker
from tasks.train.knowledge.engine import TripleEngine
from tasks.train.knowledge.relations import RelationRows
from tasks.train.knowledge.shared import Projection
from tasks.train.tables.objective import BlockEnds
from tests.knowledge_graphs import Triples, triple_graph
from tests.train.knowledge_trainings import best, check_same, recipe, trained, trained_up_to
from tests.train.test_knowledge import batch_of


def features(rows: int, columns: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(size=(rows, columns)).astype(np.float32)


def test_columns_come_in_units_of_their_spread() -> None:
    found = features(50, 4) * [1e-3, 1, 1e4, 0] + [0, 5, 1e5, 7]
    read = Projection(found, np.ones(50), 3, UpdateRule("sgd")).read(np.arange(50))
    torch.testing.assert_close(read.mean(0), torch.zeros(4), atol=1e-4, rtol=0)
    torch.testing.assert_close(read.std(0, correction=0), torch.tensor([4, 4, 4, 0]) / 3**0.5, atol=1e-3, rtol=0)
    assert float(read.square().sum(1).mean()) == pytest.approx(16, abs=1e-2)


@pytest.mark.parametrize("name", ["complex", "transe", "rotate"])
@pytest.mark.parametrize("inverse", [False, True])
def test_a_batch_moves_maps_by_their_gradients(tmp_path: Path, name: str, inverse: bool) -> None:
    graph = triple_graph(tmp_path)
    model = {"name": name, "inverse_relations": inverse}
    tables = batch_of(graph, model, {"batch_size": 21, "negatives": 9, "share": 8}, "softmax")
    learning = tables.learning
    width, count = learning.relations.table.width, graph.manifest.num_relations
    seen = np.ones(graph.manifest.num_nodes)
    learning.projection = Projection(features(len(seen), 5), seen, 12, UpdateRule("sgd"))
    own = features(count, 3, 1)
    learning.relations = RelationRows(
        learning.model, learning.options, count, UpdateRule("sgd"), 5, (own, np.ones(count))
    )
    of_relations = learning.relations._projection
    assert of_relations is not None
    maps = [learning.projection.rows.table, of_relations.rows.table]
    assert maps[1].rows.shape == (6 if inverse else 3, width)
    for number, table in enumerate(maps):
        table.write(slice(None), features(*table.rows.shape, 2 + number) * np.float32(0.3))
    before = [torch.from_numpy(table.read()).requires_grad_() for table in maps]
    read = learning.projection.read(np.arange(graph.manifest.num_nodes))
    entities = torch.from_numpy(tables.entities.read()) + read @ before[0]
    own_rows = torch.from_numpy(learning.relations.table.read())
    relations = own_rows + of_relations.read(np.arange(len(own_rows))) @ before[1]
    torch.testing.assert_close(learning.relations.rows(), relations.detach())
    columns = [np.empty(learning.loader.room, np.int32) for _ in range(3)]
    columns = [column[: learning.loader.fill(2, *columns)] for column in columns]
    wanted = torch.autograd.grad(tables.plain_loss(entities, relations, columns, (2, 0, 0)), [*before, entities])
    rows = torch.from_numpy(tables.entities.read())
    learning.learn({"entities": (tables.entities, tables.entities)}, columns, (2, 0, 0), BlockEnds(0, 0), 1.0)
    for table, start, gradient in zip(maps, before, wanted, strict=False):
        assert float(gradient.abs().max()) > 0
        torch.testing.assert_close(start.detach() - torch.from_numpy(table.read()), gradient, atol=2e-5, rtol=1e-3)
    torch.testing.assert_close(rows - torch.from_numpy(tables.entities.read()), wanted[2], atol=2e-5, rtol=1e-3)


def ring_of_features(unseen: int = 12, entities: int = 120) -> tuple[dict[str, Triples], NDArray[np.float32]]:
    """Steps on a ring, whose places are the entities' features; the last entities are in the test split alone."""
    places = np.random.default_rng(1).permutation(entities)
    angle = 2 * np.pi * places[:, None] * np.arange(1, 5) / entities
    feat = np.concatenate([np.cos(angle), np.sin(angle)], 1)
    by_place = np.argsort(places)
    steps = np.array([1, -1, 5, 17, 60])
    heads, relations = np.repeat(np.arange(entities), 5), np.tile(np.arange(5), entities)
    triples = np.stack([heads, relations, by_place[(places[heads] + steps[relations]) % entities]], 1)
    new = (triples[:, [0, 2]] >= entities - unseen).any(1)
    old = np.random.default_rng(2).permutation(triples[~new])
    return {"train": old[50:], "valid": old[:50], "test": triples[new]}, feat.astype(np.float32)


def mrr_of_test(engine: TripleEngine, work: Path) -> float:
    """Of the model that was written, whose rows are those of the nodes in their order."""
    state, splits = best(work)["model"], TripleSplits(engine.store)
    ranker = TripleRanker(engine.model, engine.options, splits.known, memory=10**8)
    table = TableBlocks(state["encoder.embedding.weight"])
    return float((1 / ranker.ranks(splits.triples("test"), table, state["relations"]).mean).mean())


def test_entities_without_triples_are_known_by_their_features(tmp_path: Path) -> None:
    splits, feat = ring_of_features()
    graph = triple_graph(tmp_path / "graph", splits, feat=feat)
    found = {}
    for used in (True, False):
        asked = recipe(model={"features": used}, train={"epochs": 60, "eval_every": 30, "learning_rate": 0.1})
        engine = trained(graph, tmp_path / str(used), asked)
        found[used] = mrr_of_test(engine, tmp_path / str(used))
    assert found[True] > 0.5
    assert found[False] < 0.15


@pytest.mark.parametrize(
    "train",
    [
        {"strategy": {"blocks": 4}},
        {"strategy": {"blocks": 6, "memory": 14_000}},
        {"loader": {"name": "k_vs_all", "batch_size": 64}, "epochs": 30},
    ],
    ids=str,
)
def test_features_help_in_blocks_and_against_all_entities(tmp_path: Path, train: dict[str, Any]) -> None:
    splits, feat = ring_of_features()
    graph = triple_graph(tmp_path / "graph", splits, feat=feat, relation_feat=features(5, 3))
    engine = trained(
        graph, tmp_path / "work", recipe(train={"epochs": 60, "eval_every": 30, "learning_rate": 0.1, **train})
    )
    assert mrr_of_test(engine, tmp_path / "work") > 0.4


def test_a_training_with_features_that_stopped_goes_on_to_the_same_rows(tmp_path: Path) -> None:
    splits, feat = ring_of_features()
    graph = triple_graph(tmp_path / "graph", splits, feat=feat, relation_feat=features(5, 3))
    asked = recipe(train={"epochs": 6, "eval_every": 2, "strategy": {"blocks": 2}, "checkpoint_minutes": 1e-9})
    trained(graph, tmp_path / "whole", asked)
    trained_up_to(3, graph, tmp_path / "halves", asked)
    trained(graph, tmp_path / "halves", asked)
    check_same(tmp_path / "whole", tmp_path / "halves")
