"""Which entities complete a triple best."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tasks.arrays import Array
from tasks.ranking.entities import EntityBlocks
from tasks.ranking.known_triples import Known
from tasks.ranking.loops import keep_best
from tasks.ranking.queries import Queries, contests
from tasks.ranking.rank import MEMORY
from tasks.ranking.ranks import check_finite

NOBODY = -1


def top_entities(
    queries: Queries,
    entities: EntityBlocks,
    k: int,
    known: Known | None = None,
    counted: Array | None = None,
    memory: int = MEMORY,
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return the k best entities of each query and their scores, (n, k) each, best first; ties by the smaller number.

    Where fewer than k entities count, the last places have entity -1 and score -infinity. What `l2` sums is compared
    without the root, so that entities whose printed scores are equal may differ.

    Args:
        queries: n of them.
        entities: N of them; passed over once for each batch of queries.
        k: how many.
        known: entities that are left out, a list for each query (`KnownTriples`); None: none.
        counted: bool (N,): others are left out too; None: none.
        memory: bytes, beside the arguments, the result and a block of entities: a query takes 4 w, twice that with a
            scale, 12 k and 80.

    Raises RecipeError: a score is NaN or infinite.
    """
    numbers, scores = np.empty((len(queries), k), np.int64), np.empty((len(queries), k), np.float32)
    num_bad, nobody = 0, entities.num_entities
    for rows, contest in contests(queries, known, entities, memory, 12 * k):
        best, entity = np.full((contest.num_padded, k), -np.inf, np.float32), np.full((contest.num_padded, k), nobody)
        bad = np.zeros(contest.num_padded, np.int64)
        contest.meet(entities, counted, keep_best, best, entity, bad)
        size = rows.stop - rows.start
        num_bad += int(bad[:size].sum())
        order = np.lexsort((entity[:size], -best[:size]), axis=1)
        numbers[rows] = np.take_along_axis(entity[:size], order, axis=1)
        scores[rows] = np.take_along_axis(best[:size], order, axis=1)
    check_finite(num_bad, len(queries) * entities.num_entities)
    numbers[numbers == nobody] = NOBODY
    return numbers, queries.printed(scores)
