"""Ranks of triples' ends by a model: queries for heads and for tails, against all entities or given ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.knowledge.base import KnowledgeModel, Side, made_queries
from tasks.arrays import Array, blocks
from tasks.ranking.entities import EntityBlocks
from tasks.ranking.known_triples import Known, KnownTriples
from tasks.ranking.queries import Queries
from tasks.ranking.rank import MEMORY, rank_candidates, rank_queries
from tasks.ranking.ranks import TripleRanks

_ROWS_OF_A_QUERY = 6
"""As long as an entity's: the known end's, the relation's, the query, its scale, and what they are computed from."""
SIDES: tuple[Side, Side] = ("head", "tail")


@dataclass(frozen=True)
class RankedTriples:
    """Triples that are ranked."""

    edges: Array
    """Heads and tails, int (n, 2)."""
    relations: Array
    """int64 (n,)."""
    candidates: Array | None = None
    """int (n, K, 2): entities to rank each head and each tail against; None: all."""

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.edges)

    def taken(self, rows: Array | slice) -> RankedTriples:
        """Return some of them: bool (n,), or numbers (m,), or a part."""
        candidates = None if self.candidates is None else self.candidates[rows]
        return RankedTriples(self.edges[rows], self.relations[rows], candidates)


class TripleRanker:
    """Makes queries of triples and ranks what is true."""

    def __init__(
        self,
        model: type[KnowledgeModel],
        options: Any,
        known: KnownTriples,
        counted: NDArray[np.bool_] | None = None,
        memory: int = MEMORY,
    ) -> None:
        """Remember what is known.

        Args:
            model: makes queries.
            options: the model's.
            known: triples whose entities do not count against others.
            counted: bool (N,), entities that count; None: all.
            memory: bytes that a ranking may use.
        """
        self.model, self.options, self.known = model, options, known
        self.counted, self.memory = counted, memory

    def ranks(self, triples: RankedTriples, entities: EntityBlocks, relations: Tensor) -> TripleRanks:
        """Return the ranks of the triples' heads, then those of their tails.

        Args:
            triples: n of them, by numbers of entities in the order of `entities`.
            entities: rows of all entities.
            relations: rows of relations, float32 (R, width).
        """
        # As many at a time as half of the memory has room for; one part also where there is no triple.
        most = max(1, self.memory // 2 // (_ROWS_OF_A_QUERY * 4 * entities.width))
        parts = [triples.taken(rows) for rows in blocks(len(triples), most)] or [triples]
        return TripleRanks.joined([self._some(part, entities, relations, side) for side in SIDES for part in parts])

    def _some(self, triples: RankedTriples, entities: EntityBlocks, relations: Tensor, side: Side) -> TripleRanks:
        asked, given = (0, 1) if side == "head" else (1, 0)
        truth = np.asarray(triples.edges[:, asked], np.int64)
        queries = self.queries(triples.edges[:, given], triples.relations, entities, relations, side)
        if triples.candidates is not None:
            candidates = np.asarray(triples.candidates[:, :, asked], np.int64)
            return rank_candidates(queries, truth, candidates, lambda rows: gather(entities, rows), self.memory // 2)
        known = known_of(self.known, triples.edges[:, given], triples.relations, side)
        return rank_queries(queries, truth, entities, known, self.counted, self.memory // 2)

    def queries(self, ends: Array, relations: Array, entities: EntityBlocks, table: Tensor, side: Side) -> Queries:
        """Return queries for the end `side`, made of the other ends, int (n,), and relations, int (n,)."""
        rows = torch.from_numpy(gather(entities, np.asarray(ends, np.int64)))
        numbers = torch.from_numpy(np.asarray(relations, np.int64))
        with torch.no_grad():
            made = made_queries(self.model, self.options, rows, table, numbers, side)
        return Queries(self.options.similarity, made.vectors, made.scale)


def known_of(known: KnownTriples, ends: Array, relations: Array, side: Side) -> Known:
    """Return the entities that are known to complete queries for an end."""
    return known.tails(ends, relations) if side == "tail" else known.heads(relations, ends)


def gather(entities: EntityBlocks, numbers: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return the rows of some entities, float32 (n, w), in one pass over all blocks."""
    gathered = np.empty((len(numbers), entities.width), np.float32)
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    for first, rows in entities:
        low, high = np.searchsorted(ordered, [first, first + len(rows)])
        gathered[order[low:high]] = rows[ordered[low:high] - first]
    return gathered
