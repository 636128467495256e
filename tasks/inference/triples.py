"""Ranks of a split's triples by a trained model, from a graph's arrays."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from configs.errors import DataError
from models.knowledge.base import KnowledgeModel
from tasks.arrays import Array
from tasks.ranking.entities import TableBlocks
from tasks.ranking.known_triples import KnownTriples
from tasks.ranking.rank import MEMORY
from tasks.ranking.ranks import TripleRanks
from tasks.ranking.triples import RankedTriples, TripleRanker
from tasks.storage.graph_store import GraphStore
from tasks.storage.manifests import SPLITS


@dataclass(frozen=True)
class TripleSplits:
    """The triples of a graph."""

    store: GraphStore
    memory: int = MEMORY
    """Bytes that a ranking may use."""

    def triples(self, split: str) -> RankedTriples:
        """Return a split's triples. Raises DataError: the graph has no such split."""
        if f"{split}_edges" not in self.store:
            raise DataError(f"{self.store.manifest.dataset} has no {split} triples; leave it out of evaluate.splits")
        edges, relations = self.store[f"{split}_edges"], np.asarray(self.store[f"{split}_relation"], np.int64)
        return RankedTriples(edges, relations, None if split == "train" else self.store.get(f"{split}_negative"))

    @cached_property
    def known(self) -> KnownTriples:
        """The triples of all splits."""
        manifest = self.store.manifest
        splits = [self.triples(split) for split in SPLITS]
        pairs = [(part.edges, part.relations) for part in splits]
        return KnownTriples.of(pairs, manifest.num_nodes, manifest.num_relations)

    @cached_property
    def is_seen(self) -> NDArray[np.bool_]:
        """Which entities training triples name: bool (N,)."""
        seen = np.zeros(self.store.manifest.num_nodes, np.bool_)
        seen[np.asarray(self.store["train_edges"]).reshape(-1)] = True
        return seen

    def ranks(self, model: KnowledgeModel, triples: RankedTriples, counted: Array | None = None) -> TripleRanks:
        """Rank the triples' heads, then their tails, by a model on the CPU, whose table may lie in a file.

        `counted`, bool (N,): entities that are ranked against; None: all.
        """
        ranker = TripleRanker(type(model), model.config, self.known, counted, self.memory)
        return ranker.ranks(triples, TableBlocks(model.table), model.relations)


def means_of_relations(store: GraphStore) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the tails a head and the heads a tail of each relation, means over training triples: (R,) each."""
    edges, relations = np.asarray(store["train_edges"]), np.asarray(store["train_relation"], np.int64)
    count, entities = store.manifest.num_relations, store.manifest.num_nodes
    triples = np.bincount(relations, minlength=count)
    heads, tails = (
        np.bincount(np.unique(relations * entities + edges[:, end]) // entities, minlength=count) for end in (0, 1)
    )
    return triples / np.maximum(heads, 1), triples / np.maximum(tails, 1)
