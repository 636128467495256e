"""Which types of entities may complete a triple."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from models.knowledge.base import Side
from tasks.arrays import Array
from tasks.ranking.entities import EntityBlocks
from tasks.ranking.known_triples import Known
from tasks.ranking.queries import Queries
from tasks.ranking.rank import MEMORY, top_entities
from tasks.ranking.triples import SIDES, RankedTriples

OF_RELATION, ANY = -1, -2
"""Stand for a type: those that the relation has had at that end, and all."""


class EntityTypes:
    """The type of each entity, and the types that each relation has had at its ends."""

    def __init__(self, kind_of: Array, num_types: int, train: RankedTriples, num_relations: int) -> None:
        """Look at triples.

        Args:
            kind_of: type of each entity, (N,), below num_types.
            num_types: T.
            train: triples that say what a relation has had.
            num_relations: R.
        """
        self._of, self._num_types = kind_of, num_types
        self._had: dict[Side, NDArray[np.bool_]] = {}
        for end, side in enumerate(SIDES):
            had = np.zeros((num_relations, num_types), np.bool_)
            had[train.relations, kind_of[train.edges[:, end]]] = True
            had[~had.any(axis=1)] = True  # nothing speaks against any of them
            self._had[side] = had

    def top(
        self,
        queries: Queries,
        relations: Array,
        side: Side,
        entities: EntityBlocks,
        k: int,
        known: Known | None,
        kinds: Array | None = None,
        memory: int = MEMORY,
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return what `top_entities` does, of those that count for each query: one pass for each set of types.

        Args:
            relations: of the queries, (n,).
            side: the end that is asked for.
            kinds: number of a type, OF_RELATION or ANY, (n,); None: OF_RELATION.
            queries, entities, k, known, memory: see there.
        """
        entity, score = np.empty((len(queries), k), np.int64), np.empty((len(queries), k), np.float32)
        kinds = np.full(len(queries), OF_RELATION) if kinds is None else kinds
        for rows, counted in self.counted(relations, kinds, side):
            own = None if known is None else known.part(rows)
            entity[rows], score[rows] = top_entities(queries.part(rows), entities, k, own, counted, memory)
        return entity, score

    def counted(
        self, relations: Array, kinds: Array, side: Side
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.bool_] | None]]:
        """Yield rows of queries (n,) with the entities that count for them: bool (N,), None for all."""
        # Of few relations there are many queries, and types may be thousands.
        pairs, pair_of = np.unique(relations * (self._num_types + 2) + (kinds + 2), return_inverse=True)
        relation, kind = np.divmod(pairs, self._num_types + 2)
        kind = kind - 2
        allowed = self._had[side][relation]
        allowed[kind != OF_RELATION] = False
        allowed[kind == ANY] = True
        chosen = np.flatnonzero(kind >= 0)
        allowed[chosen, kind[chosen]] = True
        distinct, set_of = np.unique(allowed, axis=0, return_inverse=True)
        own = set_of.reshape(-1)[pair_of.reshape(-1)]
        for number, some in enumerate(distinct):
            yield np.flatnonzero(own == number), None if some.all() else some[self._of]
