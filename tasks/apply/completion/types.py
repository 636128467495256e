"""Which types of entities may complete a triple."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from models.knowledge import Side
from tasks.arrays import Array
from tasks.ranking.triples import SIDES, Triples

OF_RELATION, ANY = -1, -2
"""Stand for a type: those that the relation has had at that end, and all."""


class EntityTypes:
    """The type of each entity, and the types that each relation has had at its ends."""

    def __init__(self, nodes_of_types: Sequence[Array], train: Triples, num_relations: int) -> None:
        """Look at triples.

        Args:
            nodes_of_types: the entities of each type; each entity is of one.
            train: triples that say what a relation has had.
            num_relations: R.
        """
        self._num_types = len(nodes_of_types)
        self._of = np.empty(sum(map(len, nodes_of_types)), np.int32)
        for kind, nodes in enumerate(nodes_of_types):
            self._of[nodes] = kind
        self._had: dict[Side, NDArray[np.bool_]] = {}
        for end, side in enumerate(SIDES):
            had = np.zeros((num_relations, self._num_types), np.bool_)
            had[train.relations, self._of[train.edges[:, end]]] = True
            had[~had.any(axis=1)] = True  # nothing speaks against any of them
            self._had[side] = had

    def counted(
        self, relations: Array, kinds: Array, side: Side
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.bool_] | None]]:
        """Yield rows of queries (n,) with the entities that count for them: bool (N,), None for all.

        Args:
            relations: of the queries.
            kinds: number of a type, OF_RELATION or ANY, likewise.
            side: the end that is asked for.
        """
        allowed = self._had[side][relations]
        allowed[kinds != OF_RELATION] = False
        allowed[kinds == ANY] = True
        chosen = np.flatnonzero(kinds >= 0)
        allowed[chosen, kinds[chosen]] = True
        distinct, places = np.unique(allowed, axis=0, return_inverse=True)
        for number, some in enumerate(distinct):
            yield np.flatnonzero(places.reshape(-1) == number), None if some.all() else some[self._of]
