"""Batches against all entities move rows by the gradient of their loss as it is defined: autograd's."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import softplus

from configs.errors import RecipeError
from configs.registry import LOADERS, MODELS, TRIPLE_LOSSES
from models.kernels.tables.row_layout import UpdateRule
from models.kernels.tables.row_tables import RowTable
from models.knowledge.base import relation_rows
from tasks.storage.graph_store import GraphStore
from tasks.train.knowledge.all_entities import AllEntitiesStepper
from tasks.train.knowledge.relations import RelationRows, TripleTask
from tasks.train.loaders.samples.triples import TripleData
from tests.knowledge_graphs import triple_graph
from tests.train.test_knowledge import SCORERS, compared

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

    def __init__(
        self, folder: Path, model: dict[str, Any], loader: dict[str, Any], loss: str, memory: int | None = None
    ):
        graph = triple_graph(folder)
        store, count = GraphStore(graph.folder, graph.manifest), graph.manifest.num_nodes
        self.options = MODELS.config({"dim": DIM, **model})
        kind = MODELS.get(self.options.name)
        self.relations = RelationRows(kind, self.options, graph.manifest.num_relations, SGD, 5)
        self.table = RowTable.zeros(count, DIM, "float32", SGD)
        rows = torch.empty(count, DIM)
        kind.start_entities(self.options, rows, torch.Generator().manual_seed(1))
        self.table.write(slice(None), rows.numpy())
        tables = SimpleNamespace(num_nodes=count, num_blocks=1, num_bytes=self.table.values.nbytes)
        grid: Any = SimpleNamespace(tables=tables, room=None, meeting=lambda *_: {"entities": (self.table, self.table)})
        made = LOADERS.create(LOADERS.config(loader), TripleData(store, 3))
        losses = TRIPLE_LOSSES.create(TRIPLE_LOSSES.config(loss))
        task = TripleTask(kind, self.options, made, losses, self.relations, None, 11)
        self.stepper = AllEntitiesStepper(task, grid, device_memory=memory)

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


def test_a_device_without_room_is_refused(tmp_path: Path) -> None:
    loader = {"name": "one_vs_all", "batch_size": 100}
    Case(tmp_path / "1", {"name": "distmult"}, loader, "softmax", 1 << 20)
    with pytest.raises(RecipeError, match=r"GPU's memory.*train.loader.batch_size to \d+ or less.*train.device=cpu"):
        Case(tmp_path / "2", {"name": "distmult"}, loader, "softmax", 100_000)
    with pytest.raises(RecipeError, match=r"take train.loader=triples.*or train.device=cpu"):
        Case(tmp_path / "3", {"name": "distmult"}, loader, "softmax", 10_000)
