"""Steps of queries that are compared with all entities at once: products of whole tables, on all threads."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from configs.errors import RecipeError
from models.kernels.dense.dropout import dropout
from models.kernels.similarity.on_threads import all_similarities, all_similarity_gradients
from models.kernels.tables.device_tables import DeviceTable
from models.kernels.tables.row_moves import all_rows, move_rows, set_lengths
from models.kernels.tables.row_tables import RowTable
from models.knowledge.base import relation_rows
from models.losses.base import Targets
from tasks.arrays import Array
from tasks.sampling.neighborhoods.neighbors import derive_key
from tasks.train.knowledge.relations import TripleTask
from tasks.train.loaders.triples import AllEntities, AskedQueries
from tasks.train.strategies.block_grid import Round
from tasks.train.tables.grid import Grid
from tasks.train.tables.objective import Meet
from tasks.train.tables.pools import Pool

_ROUNDING, _DROPOUT = 3, 4
_MOST_SCORES = 1 << 28
"""Scores of a batch: 1 GiB."""


class AllEntitiesStepper:
    """Trains batch after batch; a batch's gradients move every entity's row: see `Stepper`."""

    def __init__(self, task: TripleTask, grid: Grid, meet: Meet | None = None) -> None:
        """`task`: its loader is of `AllEntities`. Raises RecipeError: scores have no room."""
        self.model, self.options, self.loss = task.model, task.options, task.loss
        loader: AllEntities = task.loader
        self.loader, self.relations, self.projection, self.seed = loader, task.relations, task.projection, task.seed
        self.meet = meet or grid.meeting
        count = grid.tables.num_nodes
        if loader.room * count > _MOST_SCORES or grid.room is not None or grid.tables.num_blocks > 1:
            raise RecipeError(
                f"comparing batches of {loader.room:,} with all {count:,} entities takes more memory than there is for "
                f"it; set train.loader.batch_size to {max(1, _MOST_SCORES // count):,} or less, or take "
                "train.loader=triples, which compares with drawn entities"
            )

    def train_chunks(self, chunks: range, rates: Array) -> tuple[float, int]:
        """Train the batches one after the other."""
        table = self.meet(0, 0)["entities"][0]
        total, count = 0.0, 0
        for chunk, rate in zip(chunks, rates, strict=True):
            loss, queries = self._learn(table, chunk, float(rate))
            total, count = total + loss * queries, count + queries
        return total / max(1, count), count

    def train_buckets(self, pool: Pool, met: Round, first_chunk: int, rate: float) -> list[float]:
        """No pool has queries against all entities."""
        raise AssertionError("all entities lie in one block")

    def _learn(self, table: RowTable | DeviceTable, chunk: int, rate: float) -> tuple[float, int]:
        """Take the step of a batch; return its loss and the number of its queries."""
        asked = self.loader.batch(chunk)
        count = sum(len(some.known) for some in asked)
        entities, share = all_rows(table), self.options.entity_dropout
        everything = np.arange(len(entities))
        if self.projection is not None:
            self.projection.add_to(entities, everything)
        key = derive_key(self.seed, _DROPOUT, chunk)
        if share:
            entities = dropout(entities, share, key=key, inplace=True)
        by_entities = torch.zeros_like(entities)
        loss, rows, gradients = 0.0, [], []
        for number, some in enumerate(asked, 1):
            dropped = derive_key(self.seed, _DROPOUT, chunk, number)
            part_loss, numbers, by_relations = self._ask(some, entities, by_entities, count, dropped)
            loss += part_loss
            rows.append(numbers)
            gradients.append(by_relations)
        if share:
            by_entities = dropout(by_entities, share, key=key, inplace=True)
        noise = derive_key(self.seed, _ROUNDING, chunk) | 1
        move_rows(table, everything, by_entities, rate, noise)
        if self.projection is not None:
            self.projection.collect(everything, by_entities)
            self.projection.step(rate, noise)
        self.relations.move(np.concatenate(rows), torch.cat(gradients), rate, noise)
        if self.model.unit_entities:
            set_lengths(table, everything)
        return loss, count

    def _ask(
        self, asked: AskedQueries, entities: Tensor, by_entities: Tensor, count: int, dropped: int
    ) -> tuple[float, Array, Tensor]:
        """Add the gradients of some queries by entities' rows; return the loss, and gradients of relations' rows.

        `dropped`: key of what is dropped of relations' rows.
        """
        options, model = self.options, self.model
        share = len(asked.known) / count
        rows, asked_of = relation_rows(
            options, torch.from_numpy(asked.relations), self.relations.table.num_rows, asked.side
        )
        relations, dropout_share = self.relations.read(rows.numpy()), options.relation_dropout
        if dropout_share:
            relations = dropout(relations, dropout_share, key=dropped, inplace=True)
        known = torch.from_numpy(asked.known).to(entities.device)
        queries = model.queries(options, entities[known], relations, asked_of)
        kind, vectors, scale = options.similarity, queries.vectors, queries.scale
        scores = all_similarities(kind, vectors, entities, scale)
        smoothing = getattr(self.loader.config, "label_smoothing", 0.0)
        true_rows, true = (torch.from_numpy(one).to(entities.device) for one in (asked.rows, asked.columns))
        targets = Targets(true_rows, true, smoothing)
        own = scores.clone() if kind == "l2" else None
        loss, by_scores = self.loss.of_all(scores, targets)
        by_scores *= share
        by_vectors, more, by_scale = all_similarity_gradients(kind, vectors, entities, by_scores, scale, own)
        by_entities += more
        by_known, by_relations = model.query_gradients(
            options, entities[known], relations, asked_of, by_vectors, by_scale
        )
        penalties = 0.0  # means over queries, of the rows that a query and what is true have
        if options.penalty != "none" and (weight := options.entity_penalty / count):
            penalty, gradient = model.penalty(options, entities[known])
            by_known = by_known + gradient * weight  # known ends and relations may have had one tensor
            penalties += float(penalty.sum()) * weight
            penalty, gradient = model.penalty(options, entities[true])
            by_entities.index_add_(0, true, gradient * weight)
            penalties += float(penalty.sum()) * weight
        if options.penalty != "none" and (weight := options.relation_penalty / count):
            penalty, gradient = model.penalty(options, relations)
            by_relations = by_relations + gradient * weight
            penalties += float(penalty.sum()) * weight
        by_entities.index_add_(0, known, by_known)
        if dropout_share:
            by_relations = dropout(by_relations, dropout_share, key=dropped)
        return float(loss) * share + penalties, rows.numpy(), by_relations
