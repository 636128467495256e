"""Ranking of validation triples while training, and how scores become probabilities."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from configs.errors import DataError
from models.knowledge.base import KnowledgeModel
from tasks.arrays import Array, sample_rows
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
from tasks.train.knowledge.entities import numbers

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
