"""Ranking of validation triples while training, rows of entities for it, and how scores become probabilities."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from configs.errors import DataError
from models.kernels.tables.row_tables import RowTable
from models.knowledge.base import KnowledgeModel
from tasks.arrays import Array, blocks, offsets, sample_rows
from tasks.evaluators.prediction import Prediction
from tasks.evaluators.several import make_evaluator
from tasks.ranking.calibration import fit_calibration
from tasks.ranking.entities import EntityBlocks
from tasks.ranking.known_triples import KnownTriples
from tasks.ranking.triples import RankedTriples, TripleRanker
from tasks.ranking.types import EntityTypes
from tasks.storage.graph_store import GraphStore
from tasks.storage.ids import IdMap
from tasks.storage.manifests import SPLITS
from tasks.train.job import AnyJob
from tasks.train.knowledge.relations import Projection
from tasks.train.tables.grid import Grid, Saved, block_rows

_CALIBRATED = 5000
"""Validation triples that probabilities are fitted to."""


class TripleValidation:
    """Ranks validation triples against all entities."""

    def __init__(self, job: AnyJob, store: GraphStore, model: type[KnowledgeModel], num_blocks: int) -> None:
        """Know all triples. Raises DataError: there is no validation triple."""
        manifest = store.manifest
        if not manifest.splits.get("valid"):
            raise DataError(f"{manifest.dataset} has no validation split, and that chooses the best epoch; give it one")
        self.evaluator = make_evaluator(job.evaluate.evaluator, manifest)
        self.model, self.options = model, job.model

        def triples(split: str) -> tuple[Array, Array]:
            edges = numbers(store[f"{split}_edges"], manifest.num_nodes, num_blocks)
            return edges, np.asarray(store[f"{split}_relation"], np.int64)

        def known(*splits: str) -> KnownTriples:
            return KnownTriples.of(map(triples, splits), manifest.num_nodes, manifest.num_relations)

        self._others, self._valid = known("train", "test"), known("valid")
        self.memory = int(job.evaluate.memory)
        self.ranker = TripleRanker(model, job.model, known(*SPLITS), memory=self.memory)
        edges, relations = triples("valid")
        most = getattr(job.train, "eval_triples", None) or len(edges)
        self.triples = self._some(edges, relations, store, num_blocks, most)
        self._calibrated = self._some(edges, relations, store, num_blocks, _CALIBRATED)
        self._types = None
        if len(manifest.node_types) > 1:
            count = manifest.num_nodes
            kind_of = np.empty(count, np.int32)
            kind_of[numbers(np.arange(count), count, num_blocks)] = IdMap(store, None).type_numbers()
            train = RankedTriples(*triples("train"))
            self._types = EntityTypes(kind_of, len(manifest.node_types), train, manifest.num_relations)

    def _some(self, edges: Array, relations: Array, store: GraphStore, num_blocks: int, most: int) -> RankedTriples:
        """Return at most so many triples, with the entities that the data set gives to rank them against."""
        chosen = sample_rows(np.arange(len(edges)), most)
        given = store.get("valid_negative")
        candidates = None
        if given is not None:
            candidates = numbers(given[chosen], store.manifest.num_nodes, num_blocks)
        return RankedTriples(edges[chosen], relations[chosen], candidates)

    def measure(self, entities: EntityBlocks, relations: Tensor) -> dict[str, float]:
        """Return the metrics of entities' rows and relations' rows, float32 (R, width)."""
        ranks = self.ranker.ranks(self.triples, entities, relations)
        return self.evaluator(Prediction(ranks=ranks))

    def calibrate(self, entities: EntityBlocks, relations: Tensor) -> Tensor:
        """Return what makes probabilities of scores: see `fit_calibration`."""
        ranker = TripleRanker(self.model, self.options, self._others, memory=self.memory)
        return fit_calibration(ranker, self._calibrated, self._valid, entities, relations, self._types)


_ROWS = 1 << 16


def numbers(nodes: Array, num_nodes: int, num_blocks: int) -> NDArray[np.int64]:
    """Return the numbers that nodes, of any shape, have in the order of the blocks."""
    starts = offsets([block_rows(num_nodes, num_blocks, block) for block in range(num_blocks)])
    node_ids = np.asarray(nodes, np.int64)
    places: NDArray[np.int64] = starts[node_ids % num_blocks] + node_ids // num_blocks
    return places


class GridEntities:
    """Blocks of a grid, one after the other: see `tasks.ranking.entities.EntityBlocks`."""

    def __init__(self, grid: Grid, files: Saved | None = None, projection: Projection | None = None) -> None:
        """`files`: of a checkpoint, of all ranks; None: the blocks of this rank's memory as they are."""
        self._grid, self._files, self._projection = grid, files, projection
        self.num_entities = grid.tables.num_nodes
        (self._name,) = grid.tables.widths()
        self.width = grid.tables.widths()[self._name]

    def __iter__(self) -> Iterator[tuple[int, NDArray[np.float32]]]:
        """Yield the number of a block's first entity, and rows: float32 (m, width)."""
        first = 0
        for block in range(self._grid.tables.num_blocks):
            table = self._block(block)
            for part in blocks(table.num_rows, _ROWS):
                yield first + part.start, self._rows(table, block, part)
            first += table.num_rows

    def copy_to(self, out: Array) -> None:
        """Write the rows of all nodes into float32 (N, width), by their own numbers."""
        count = self._grid.tables.num_blocks
        for block in range(count):
            table = self._block(block)
            own = out[block::count]
            for part in blocks(table.num_rows, _ROWS):
                own[part] = self._rows(table, block, part)

    def _rows(self, table: RowTable, block: int, part: slice) -> NDArray[np.float32]:
        rows = np.ascontiguousarray(table.read(part))
        if self._projection is not None:
            nodes = block + self._grid.tables.num_blocks * np.arange(part.start, part.stop)
            self._projection.complete(torch.from_numpy(rows), nodes)
        return rows

    def _block(self, block: int) -> RowTable:
        key = self._name, block
        if self._files is None:
            self._grid.load([key])
            return self._grid.block(key)
        return self._grid.saved_block(key, self._files)
