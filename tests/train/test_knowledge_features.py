"""Knowledge graphs: features of entities and relations, later snapshots, and all entities at once."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import softplus

from configs.errors import RecipeError
from configs.load import build_recipe
from configs.registry import LOADERS, LOSSES, MODELS
from models.kernels.tables.row_layout import UpdateRule
from models.kernels.tables.row_tables import RowTable
from models.knowledge.base import relation_rows
from tasks.inference.triples import TripleSplits
from tasks.ranking.entities import TableBlocks
from tasks.ranking.triples import TripleRanker
from tasks.stage import Parent
from tasks.storage.artifacts import MANIFEST_NAME
from tasks.storage.home import Home
from tasks.storage.ids import relation_names
from tasks.train.job import BEST, Job, WarmStart
from tasks.train.knowledge.all_entities import AllEntitiesStepper
from tasks.train.knowledge.engine import TripleEngine
from tasks.train.knowledge.relations import Projection, RelationRows, TripleTask
from tasks.train.knowledge.validation import GridEntities
from tasks.train.loaders.base import SampleData
from tasks.train.state import checkpoint
from tasks.train.strategies.base import Ranks
from tasks.train.tables.objective import BlockEnds
from tests.knowledge_graphs import Triples, triple_graph
from tests.preprocess.snapshot_tables import runner
from tests.preprocess.test_snapshot_triples import rows_of, write
from tests.ranked_shop import store_of
from tests.support import as_partition
from tests.train.in_process import own_settings, run_engine
from tests.train.knowledge_trainings import best, check_same, recipe, trained, trained_up_to
from tests.train.test_knowledge import SCORERS, batch_of, compared


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


MODEL = {"name": "complex", "dim": 8, "inverse_relations": True}


@pytest.fixture
def snapshots(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[int, Any]:
    """Two moments of the same triples."""
    monkeypatch.chdir(tmp_path)
    section, run = write(rows_of(4)), runner(home)
    found = {year: run(section, f"snapshot.as_of={year}", symmetrize=False) for year in (5, 10)}
    for snapshot in found.values():
        made = as_partition(Parent(snapshot.manifest, snapshot.graph.folder))
        (made.folder / MANIFEST_NAME).chmod(0o644)
        (made.folder / MANIFEST_NAME).write_text(made.manifest.model_dump_json())
    return found


def engine(found: Any, work: Path, warm: WarmStart | None = None, **changes: Any) -> TripleEngine:
    work.mkdir()
    train = {"epochs": 3, "eval_every": 1, "threads": 1, "loader": {"batch_size": 32, "negatives": 8}, **changes}
    asked = build_recipe({"name": "demo", "dataset": "synthetic_triples", "model": MODEL, "train": train})
    with own_settings():
        return TripleEngine(Job.make(asked, found.graph.folder, "x", work, warm), Ranks())


def finished(found: Any, work: Path) -> Path:
    made = engine(found, work)
    with own_settings():
        run_engine(made)
        made.finish()
    return work / BEST


def earlier(found: Any, best: Path) -> WarmStart:
    return WarmStart("then", "key", best, found.graph.folder, found.dataset.folder, found.dataset.folder)


def rows_by_name(found: Any, made: TripleEngine) -> dict[str, Any]:
    rows = np.empty((len(found.names), 8), np.float32)
    GridEntities(made.grid).copy_to(rows)
    return dict(zip(found.names, rows, strict=True))


@pytest.mark.parametrize("blocks", [1, 3])
def test_what_was_known_keeps_its_rows(snapshots: dict[int, Any], tmp_path: Path, blocks: int) -> None:
    best = finished(snapshots[5], tmp_path / "then")
    state = checkpoint.load(best)["model"]
    (name,) = (name for name in state if name.startswith("encoder."))
    known = dict(zip(snapshots[5].names, state[name].numpy(), strict=True))
    strategy = {"name": "block_grid", "blocks": blocks}
    made = engine(snapshots[10], tmp_path / "now", earlier(snapshots[5], best), strategy=strategy)
    now, cold = (
        rows_by_name(snapshots[10], one) for one in (made, engine(snapshots[10], tmp_path / "cold", strategy=strategy))
    )
    assert made.progress.cold_because == ""
    assert 0 < len(known) < len(now)
    for entity, row in now.items():
        assert np.array_equal(row, known.get(entity, cold[entity])), entity
    assert np.array_equal(made.relations.rows(), state["relations"])
    assert len(state["relations"]) == 2 * len(relation_names(snapshots[10].dataset))


def test_rows_that_learnt_what_is_held_out_now_are_not_taken(snapshots: dict[int, Any], tmp_path: Path) -> None:
    best = finished(snapshots[10], tmp_path / "later")
    made = engine(snapshots[5], tmp_path / "now", earlier(snapshots[10], best))
    assert "triples that it learnt from are in the valid split now" in str(made.progress.cold_because)
    cold = rows_by_name(snapshots[5], engine(snapshots[5], tmp_path / "cold"))
    assert all(np.array_equal(row, cold[name]) for name, row in rows_by_name(snapshots[5], made).items())


def test_rows_of_another_width_do_not_fit(
    snapshots: dict[int, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    best = finished(snapshots[5], tmp_path / "then")
    monkeypatch.setitem(MODEL, "dim", 12)
    made = engine(snapshots[10], tmp_path / "now", earlier(snapshots[5], best))
    assert made.progress.cold_because == "rows of entities have 8 numbers and those of relations 8, here 12 and 12"


def test_vectors_of_nodes_begin_afresh_and_say_so() -> None:
    with pytest.raises(RecipeError, match="learnt afresh in every snapshot"):
        build_recipe({"name": "demo", "dataset": "synthetic", "model": "skipgram", "snapshot": {"warm_start": True}})


DIM, CHUNK = 12, 2
SGD = UpdateRule("sgd")
LOADER_OPTIONS: list[dict[str, Any]] = [
    {"name": "one_vs_all", "batch_size": 13},
    {"name": "k_vs_all", "batch_size": 17},
    {"name": "k_vs_all", "batch_size": 17, "label_smoothing": 0.2},
]
PENALTIES: list[dict[str, Any]] = [
    {},
    {"penalty": "n3", "entity_penalty": 0.5, "relation_penalty": 0.3},
    {"penalty": "l2", "entity_penalty": 0.5, "inverse_relations": True},
]


class Case:
    """A stepper on a small graph."""

    def __init__(self, folder: Path, model: dict[str, Any], loader: dict[str, Any], loss: str):
        graph = triple_graph(folder)
        store, count = store_of(graph), graph.manifest.num_nodes
        self.options = MODELS.config({"dim": DIM, **model})
        kind = MODELS.get(self.options.name)
        self.relations = RelationRows(kind, self.options, graph.manifest.num_relations, SGD, 5)
        self.table = RowTable.zeros(count, DIM, "float32", SGD)
        rows = torch.empty(count, DIM)
        kind.start_entities(self.options, rows, torch.Generator().manual_seed(1))
        self.table.write(slice(None), rows.numpy())
        tables = SimpleNamespace(num_nodes=count, num_blocks=1)
        grid: Any = SimpleNamespace(tables=tables, room=None, meeting=lambda *_: {"entities": (self.table, self.table)})
        made = LOADERS.create(LOADERS.config(loader), SampleData(store, 3))
        losses = LOSSES.create(LOSSES.config(loss))
        task = TripleTask(kind, self.options, made, losses, self.relations, None, 11)
        self.stepper = AllEntitiesStepper(task, grid)

    def plain_loss(self, entities: Tensor, relations: Tensor) -> Tensor:
        """The loss of a batch as it is defined: a mean over its queries."""
        model, options = self.stepper.model, self.options
        asked = self.stepper.loader.batch(CHUNK)
        count, total = sum(len(some.known) for some in asked), torch.zeros(())
        for some in asked:
            numbers, asked_of = relation_rows(options, torch.from_numpy(some.relations), len(relations), some.side)
            known, true = torch.from_numpy(some.known), torch.from_numpy(some.columns)
            made = model.queries(options, entities[known], relations[numbers], asked_of)
            scores = compared(options.similarity, made.vectors, entities, made.scale)
            truth = torch.zeros_like(scores)
            truth.index_put_((torch.from_numpy(some.rows), true), torch.ones(len(true)))
            total = total + len(known) / count * self._of(scores, truth)
            if options.penalty != "none":
                of_ends = sum(model.penalty(options, entities[rows])[0].sum() for rows in (known, true))
                of_relations = model.penalty(options, relations[numbers])[0].sum()
                total = total + options.entity_penalty / count * of_ends
                total = total + options.relation_penalty / count * of_relations
        return total

    def _of(self, scores: Tensor, truth: Tensor) -> Tensor:
        smoothing = getattr(self.stepper.loader.config, "label_smoothing", 0.0)
        if self.stepper.loss.config.name == "softmax":
            shares = (1 - smoothing) * truth / truth.sum(1, keepdim=True) + smoothing / scores.shape[1]
            return -(shares * scores.log_softmax(1)).sum(1).mean()
        labels = (1 - smoothing) * truth + smoothing / scores.shape[1]
        return (softplus(scores) - labels * scores).mean()


@pytest.mark.parametrize("scorer", SCORERS)
@pytest.mark.parametrize("loader", LOADER_OPTIONS, ids=str)
@pytest.mark.parametrize("penalty", PENALTIES, ids=str)
@pytest.mark.parametrize("loss", ["softmax", "logistic"])
def test_rows_move_by_the_gradient(tmp_path: Path, scorer: str, loader: Any, penalty: Any, loss: str) -> None:
    case = Case(tmp_path, {"name": scorer, **penalty}, loader, loss)
    entities = torch.from_numpy(case.table.read()).requires_grad_()
    relations = case.relations.rows().requires_grad_()
    loss_before = case.plain_loss(entities, relations)
    wanted = torch.autograd.grad(loss_before, [entities, relations])
    rate = 1e-2  # rows of length 1 turn by their gradient only as long as steps are small
    found, _ = case.stepper.train_chunks(range(CHUNK, CHUNK + 1), np.array([rate]))
    assert found == pytest.approx(float(loss_before.detach()), rel=1e-4)
    before = entities.detach() - rate * wanted[0]
    if case.stepper.model.unit_entities:
        before = before / before.norm(dim=1, keepdim=True)
    torch.testing.assert_close(torch.from_numpy(case.table.read()), before, atol=2e-6, rtol=1e-4)
    moved = relations.detach() - rate * wanted[1]
    torch.testing.assert_close(case.relations.rows(), moved, atol=2e-6, rtol=1e-4)
