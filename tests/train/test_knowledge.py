"""Training of knowledge graphs: gradients of whole batches, what is learnt, blocks, ranks, kills."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from configs.errors import RecipeError
from configs.registry import LOADERS, LOSSES, MODELS
from configs.schema import Recipe
from models.kernels.tables.row_layout import UpdateRule
from models.kernels.tables.row_tables import RowTable
from models.knowledge.base import KnowledgeModel, Side, made_queries
from tasks.train.knowledge import family
from tasks.train.knowledge.learning import TripleLearning, _TripleBatch
from tasks.train.knowledge.relations import RelationRows, TripleTask
from tasks.train.loaders.base import SampleData
from tasks.train.loaders.triples import DrawnEntities, TripleLoader
from tasks.train.tables.objective import BlockEnds
from tests.knowledge_graphs import triple_graph
from tests.ranked_shop import store_of
from tests.train.knowledge_trainings import LOADER, best, best_mrr, check_same, recipe, trained, trained_up_to

SCORERS = ("transe", "distmult", "complex", "simple", "rotate", "quate", "rescal", "pairre")
# ---- gradients


def compared(kind: str, queries: Tensor, entities: Tensor, scale: Tensor | None) -> Tensor:
    """Each query with each entity: (n, K)."""
    moved = entities[None] if scale is None else scale[:, None] * entities[None]
    if kind == "dot":
        return (queries[:, None] * moved).sum(-1)
    apart = queries[:, None] - moved
    if kind == "complex":
        return -torch.hypot(*apart.chunk(2, -1)).sum(-1)
    return -apart.abs().sum(-1) if kind == "l1" else -apart.norm(dim=-1)


@dataclasses.dataclass
class Tables:
    """What a batch is learnt from, as plain tensors for autograd."""

    learning: TripleLearning
    entities: RowTable

    def plain_loss(self, entities: Tensor, relations: Tensor, columns: Any, number: Any) -> Tensor:
        """The loss of a batch as it is defined, by the same drawn entities."""
        learning = self.learning
        heads, tails, numbers = (torch.from_numpy(np.asarray(column, np.int64)) for column in columns)
        sides = [("tail", heads, tails), ("head", tails, heads)]
        total = torch.zeros(())
        for number_of_side, (side, known, true) in enumerate(sides):
            made = made_queries(learning.model, learning.options, entities[known], relations, numbers, side)  # type: ignore[arg-type]
            count = len(known)
            share = learning.loader.config.share or count
            drawn = np.empty((-(-count // share), learning.loader.config.negatives), np.int32)
            from tasks.sampling.neighborhoods.neighbors import derive_key

            learning.drawn.draw(0, derive_key(learning.seed, 2, *number, number_of_side), drawn)
            scores = []
            for group, some in enumerate(torch.from_numpy(drawn.astype(np.int64))):
                part = slice(group * share, min(count, (group + 1) * share))
                scale = None if made.scale is None else made.scale[part]
                found = compared(learning.options.similarity, made.vectors[part], entities[some], scale)
                scores.append(found.masked_fill(some[None] == true[part][:, None], -torch.inf))
            own_scale = None if made.scale is None else made.scale
            own = compared(learning.options.similarity, made.vectors, entities[true], own_scale).diagonal()
            others = torch.cat(scores)
            if learning.loader.config.known_end:
                itself = compared(learning.options.similarity, made.vectors, entities[known], own_scale).diagonal()
                others = torch.cat([others, itself.masked_fill(known == true, -torch.inf)[:, None]], 1)
            total = total + of_drawn(learning.loss.config, own, others) / 2
        options = learning.options
        if options.penalty == "l2":
            rows = entities[heads].square().sum() + entities[tails].square().sum()
            total = total + options.entity_penalty * rows / count
            total = total + options.relation_penalty * relations[numbers].square().sum() / count
        return total


def of_drawn(config: Any, true: Tensor, drawn: Tensor) -> Tensor:
    if config.name == "softmax":
        return (torch.logaddexp(drawn.logsumexp(1), true) - true).mean()
    counts = torch.isfinite(drawn)
    if config.name == "margin":
        lacking = (config.margin - true[:, None] + drawn).clamp(min=0)
        return (torch.where(counts, lacking, torch.zeros(())).sum(1) / counts.sum(1)).mean()
    weight = counts / counts.sum(1, keepdim=True)
    others = torch.where(counts, torch.nn.functional.softplus(drawn + config.margin), torch.zeros(()))
    return (torch.nn.functional.softplus(-true - config.margin) + (weight * others).sum(1)).mean() / 2


def batch_of(graph: Any, model: dict[str, Any], loader: dict[str, Any], loss: Any) -> Tables:
    store = store_of(graph)
    options = MODELS.config({"dim": 12, **model})
    kind: type[KnowledgeModel] = MODELS.get(options.name)
    triples: TripleLoader = LOADERS.create(LOADERS.config({"name": "triples", **loader}), SampleData(store, 3))
    relations = RelationRows(kind, options, graph.manifest.num_relations, UpdateRule("sgd"), 5)
    entities = RowTable.zeros(graph.manifest.num_nodes, 12, "float32", UpdateRule("sgd"))
    rows = torch.empty(graph.manifest.num_nodes, 12)
    kind.start_entities(options, rows, torch.Generator().manual_seed(1))
    entities.write(slice(None), rows.numpy())
    drawn = DrawnEntities(np.ones(graph.manifest.num_nodes), 1, 0.0)
    made = LOSSES.create(LOSSES.config(loss))
    task = TripleTask(kind, options, triples, made, relations, None, 11)
    return Tables(TripleLearning(task, drawn), entities)


CASES: list[tuple[dict[str, Any], dict[str, Any], Any]] = [
    *(({"name": name}, {"batch_size": 21, "negatives": 9, "share": 8}, "softmax") for name in SCORERS),
    ({"name": "transe", "norm": "l2"}, {"batch_size": 21, "negatives": 9}, {"name": "margin", "margin": 2.0}),
    ({"name": "complex", "inverse_relations": True}, {"batch_size": 30, "negatives": 7}, "softmax"),
    *(
        ({"name": name}, {"batch_size": 20, "negatives": 7, "share": 8, "known_end": True}, "softmax")
        for name in ("transe", "complex", "pairre")
    ),
    ({"name": "transe", "norm": "l2"}, {"batch_size": 20, "negatives": 7, "known_end": True}, "logistic"),
    ({"name": "rotate"}, {"batch_size": 16, "negatives": 40}, {"name": "logistic", "margin": 4.0}),
    (
        {"name": "distmult", "penalty": "l2", "entity_penalty": 0.1, "relation_penalty": 0.2},
        {"batch_size": 16, "negatives": 5},
        "logistic",
    ),
]


@pytest.mark.parametrize(("model", "loader", "loss"), CASES, ids=str)
def test_a_batch_moves_rows_by_its_gradient(tmp_path: Path, model: Any, loader: Any, loss: Any) -> None:
    tables = batch_of(triple_graph(tmp_path), model, loader, loss)
    learning = tables.learning
    columns = [np.empty(learning.loader.room, kind) for kind in (np.int32, np.int32, np.int32)]
    count = learning.loader.fill(2, *columns)
    columns = [column[:count] for column in columns]
    entities = torch.from_numpy(tables.entities.read()).requires_grad_()
    relations = learning.relations.rows().requires_grad_()
    wanted = torch.autograd.grad(
        tables.plain_loss(entities, relations, columns, (2, 0, 0)), [entities, relations], allow_unused=True
    )
    keep = learning.model.unit_entities
    learning.learn({"entities": (tables.entities, tables.entities)}, columns, (2, 0, 0), BlockEnds(0, 0), 1.0)
    moved = relations.detach() - learning.relations.rows()
    torch.testing.assert_close(moved, wanted[1], atol=2e-5, rtol=1e-3)
    after = torch.from_numpy(tables.entities.read())
    if keep:
        torch.testing.assert_close(after.norm(dim=1), torch.ones(len(after)))
        moved_to = entities.detach() - wanted[0]
        torch.testing.assert_close(after, moved_to / moved_to.norm(dim=1, keepdim=True), atol=2e-5, rtol=1e-3)
    else:
        torch.testing.assert_close(entities.detach() - after, wanted[0], atol=2e-5, rtol=1e-3)


def test_a_batch_moves_rows_by_its_gradient_where_numbers_are_dropped(tmp_path: Path) -> None:
    """Against the slope of the loss: what is dropped depends on the number of the batch alone."""
    dropped = {"entity_dropout": 0.4, "relation_dropout": 0.3, "penalty": "n3", "entity_penalty": 0.1}
    loader = {"batch_size": 21, "negatives": 9}
    tables = batch_of(triple_graph(tmp_path), {"name": "complex", "start": 1.0, **dropped}, loader, "softmax")
    learning, meeting = tables.learning, {"entities": (tables.entities, tables.entities)}
    columns = [np.empty(learning.loader.room, np.int32) for _ in range(3)]
    assert learning.loader.fill(1, *columns) == 21

    def loss() -> float:
        return learning._loss(meeting, columns, (1, 0, 0), BlockEnds(0, 0))

    learnt = tables.entities, learning.relations.table
    start = [table.read() for table in learnt]
    learning.learn(meeting, columns, (1, 0, 0), BlockEnds(0, 0), 1.0)
    gradients = [before - table.read() for before, table in zip(start, learnt, strict=True)]
    for table, before in zip(learnt, start, strict=True):
        table.write(slice(None), before)
    for table, before, gradient in zip(learnt, start, gradients, strict=True):
        step = gradient * (0.01 / np.linalg.norm(gradient))
        both = []
        for sign in (1, -1):
            table.write(slice(None), before + sign * step)
            both.append(loss())
        table.write(slice(None), before)
        assert (both[0] - both[1]) / 0.02 == pytest.approx(float(np.linalg.norm(gradient)), rel=0.01)


def test_an_epoch_has_each_triple_once(tmp_path: Path) -> None:
    store = store_of(triple_graph(tmp_path))
    loader: TripleLoader = LOADERS.create(LOADERS.config({"name": "triples", "batch_size": 77}), SampleData(store, 3))
    expected = np.concatenate([store["train_edges"], store["train_relation"][:, None]], 1)
    orders = []
    for epoch in range(2):
        found = []
        for place in range(loader.chunks_an_epoch):
            columns = [np.empty(loader.room, np.int32) for _ in range(3)]
            count = loader.fill(epoch * loader.chunks_an_epoch + place, *columns)
            found.append(np.stack([column[:count] for column in columns], 1))
        rows = np.concatenate(found)
        assert np.array_equal(np.unique(rows, axis=0), np.unique(expected, axis=0))
        assert len(rows) == len(expected)
        orders.append(rows)
    assert not np.array_equal(orders[0], orders[1])


def test_entities_are_drawn_by_their_number_of_triples() -> None:
    degree = np.array([0, 1, 8, 8])
    by_degree, alike = np.empty(40_000, np.int64), np.empty(40_000, np.int64)
    DrawnEntities(degree, 1, 1.0).draw(0, 7, by_degree)
    DrawnEntities(degree, 1, 0.0).draw(0, 7, alike)
    assert np.abs(np.bincount(by_degree, minlength=4) / 40_000 - degree / 17).max() < 0.01
    assert np.abs(np.bincount(alike, minlength=4) / 40_000 - 0.25).max() < 0.01


# ---- trainings


@pytest.mark.parametrize(
    ("name", "rate", "least"),
    [
        ("complex", 0.3, 0.4),
        ("quate", 0.3, 0.4),
        ("rotate", 0.3, 0.4),
        ("rescal", 0.05, 0.15),
        ("transe", 0.3, 0.1),  # on a ring steps come back to where they began, which sums of them cannot
    ],
)
def test_planted_relations_are_learnt(tmp_path: Path, name: str, rate: float, least: float) -> None:
    graph = triple_graph(tmp_path / "graph")
    asked = recipe(model={"name": name, "dim": 32}, train={"learning_rate": rate, "epochs": 80, "eval_every": 40})
    trained(graph, tmp_path / "work", asked)
    assert best_mrr(tmp_path / "work") > least  # a random order: .04


@pytest.mark.parametrize(
    "train",
    [
        {"loader": {"name": "one_vs_all", "batch_size": 64}},
        {"loader": {"name": "k_vs_all", "batch_size": 64, "label_smoothing": 0.1}},
        {"loader": {"name": "k_vs_all", "batch_size": 64}, "loss": "logistic"},
        {"loader": {**LOADER, "power": 0.5}},
        {"loader": {**LOADER, "share": 16}, "optimizer": "adam", "learning_rate": 0.02},
        {"loader": LOADER, "loss": {"name": "logistic", "adversarial": 1.0}},
        {"precision": "bfloat16"},
    ],
    ids=str,
)
def test_other_ways_to_learn(tmp_path: Path, train: dict[str, Any]) -> None:
    graph = triple_graph(tmp_path / "graph")
    asked = recipe(train={"epochs": 60, **train}, model={"entity_dropout": 0.1, "relation_dropout": 0.1})
    trained(graph, tmp_path / "work", asked)
    assert best_mrr(tmp_path / "work") > 0.25


def test_little_memory_for_ranking_changes_no_rank(tmp_path: Path) -> None:
    graph = triple_graph(tmp_path / "graph")
    for memory in ("1MB", "1GB"):
        asked = recipe(train={"epochs": 2, "eval_every": 1}, evaluate={"memory": memory})
        engine = trained(graph, tmp_path / memory, asked)
        assert engine.validation.ranker.memory == {"1MB": 10**6, "1GB": 10**9}[memory]
    assert best(tmp_path / "1MB")["metric"] == best(tmp_path / "1GB")["metric"]


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("strategy", [{}, {"blocks": 3}], ids=str)
@pytest.mark.parametrize("name", ["complex", "rotate"])
def test_as_many_threads_learn_the_same_again(tmp_path: Path, name: str, strategy: Any, threads: int) -> None:
    graph = triple_graph(tmp_path / "graph")
    loader = {"batch_size": 128, "negatives": 100}
    train = {"epochs": 4, "eval_every": 2, "threads": threads, "loader": loader, "strategy": strategy}
    for work in ("one", "two"):
        trained(graph, tmp_path / work, recipe(model={"name": name}, train=train))
    check_same(tmp_path / "one", tmp_path / "two")


@pytest.mark.parametrize("strategy", [{"blocks": 4}, {"blocks": 6, "memory": 14_000}], ids=str)
def test_a_training_that_stopped_goes_on_to_the_same_rows(tmp_path: Path, strategy: dict[str, Any]) -> None:
    graph = triple_graph(tmp_path / "graph")
    asked = recipe(train={"epochs": 6, "eval_every": 2, "strategy": strategy, "checkpoint_minutes": 1e-9})
    trained(graph, tmp_path / "whole", asked)

    trained_up_to(3, graph, tmp_path / "halves", asked)
    trained(graph, tmp_path / "halves", asked)
    check_same(tmp_path / "whole", tmp_path / "halves")


def test_training_stops_where_validation_does_not_get_better(tmp_path: Path) -> None:
    graph = triple_graph(tmp_path / "graph")
    options = {"epochs": 200, "eval_every": 1, "patience": 3, "plateau": {"patience": 1, "factor": 0.5}}
    engine = trained(graph, tmp_path / "work", recipe(train=options))
    assert engine.progress.epoch < 200
    lines = [json.loads(line) for line in (tmp_path / "work" / "metrics.jsonl").read_text().splitlines()]
    rates = [line["learning_rate"] for line in lines if "learning_rate" in line]
    assert rates[-1] < rates[0]


def test_best_rows_are_kept_and_not_the_last(tmp_path: Path) -> None:
    graph = triple_graph(tmp_path / "graph")
    engine = trained(graph, tmp_path / "work", recipe(train={"epochs": 12, "eval_every": 1, "learning_rate": 20.0}))
    lines = [json.loads(line) for line in (tmp_path / "work" / "metrics.jsonl").read_text().splitlines()]
    measured = [line["valid/mrr"] for line in lines if "valid/mrr" in line]
    assert best_mrr(tmp_path / "work") == max(measured)
    again = engine.validation
    state = best(tmp_path / "work")
    from tasks.ranking.entities import TableBlocks

    table = state["model"]["encoder.embedding.weight"]
    assert again.measure(TableBlocks(table), state["model"]["relations"])["mrr"] == max(measured)


def test_what_cannot_work_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="draws none"):
        recipe(train={"loader": "one_vs_all", "loss": "margin"})
    with pytest.raises(ValueError, match="num_ranks=1"):
        recipe(train={"loader": "k_vs_all", "num_ranks": 2})
    with pytest.raises(ValueError, match="adversarial and negative_weight weigh drawn entities"):
        recipe(train={"loader": "k_vs_all", "loss": {"name": "logistic", "adversarial": 1, "negative_weight": 3}})
    with pytest.raises(ValueError, match="named once each, not valid, valid"):
        recipe(evaluate={"splits": ["valid", "valid"]})
    with pytest.raises(ValueError, match="learns from triples"):
        Recipe.model_validate({"name": "demo", "dataset": "synthetic", "model": "transe"})
    graph = triple_graph(tmp_path / "graph")
    with pytest.raises(RecipeError, match="make 7 blocks"):
        family.announce(Silent(), recipe(train={"strategy": {"blocks": 500}}), graph.manifest)  # type: ignore[arg-type]


class Silent:
    """A context that says nothing."""

    def message(self, text: str) -> None: ...


def test_queries_meet_all_blocks_equally_often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else entities of some blocks would seem to be false, and others would never be compared."""
    met, plain = np.zeros((4, 4)), _TripleBatch._drawn

    def counted(batch: _TripleBatch, side: Side, block: int, count: int) -> Any:
        met[batch.blocks["tail" if side == "head" else "head"], block] += count
        return plain(batch, side, block, count)

    monkeypatch.setattr(_TripleBatch, "_drawn", counted)
    loader = {"batch_size": 16, "negatives": 8}
    asked = recipe(train={"epochs": 30, "eval_every": 30, "loader": loader, "strategy": {"blocks": 4}})
    rng = np.random.default_rng(4)
    triples = np.stack([rng.integers(120, size=1200), rng.integers(3, size=1200), rng.integers(120, size=1200)], 1)
    splits = {"train": triples[:1000], "valid": triples[1000:1100], "test": triples[1100:]}
    trained(triple_graph(tmp_path, splits), tmp_path / "work", asked)
    assert met / met.sum(1, keepdims=True) == pytest.approx(np.full((4, 4), 0.25), abs=0.03)


@pytest.mark.parametrize("strategy", [{"blocks": 4}, {"memory": 14_000}], ids=str)
def test_blocks_learn_as_well(tmp_path: Path, strategy: dict[str, Any]) -> None:
    graph = triple_graph(tmp_path / "graph")
    trained(graph, tmp_path / "work", recipe(train={"epochs": 60, "strategy": strategy}))
    assert best_mrr(tmp_path / "work") > 0.3
