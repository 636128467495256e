"""Exact filtered ranks of true entities among all entities, or among given candidates, and the best entities.

Scores are never stored: a tile of entities is scored with eight queries in registers and compared with the true
entities' scores at once, in arithmetic whose order is fixed. So an entity whose row is bit by bit the true one's counts
as equal wherever it lies, and neither threads nor blocks nor batches change a count. (A product of matrices rounds as
its shape has it, and was no faster: torch's 107 GFLOP/s, this 152; 200 columns, one core of a Xeon with AVX-512,
November 2026.) Known entities are found by their numbers while a tile's comparisons are counted.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from tasks.arrays import Array, blocks
from tasks.ranking.entities import EntityBlocks, float_rows
from tasks.ranking.known_triples import Known
from tasks.ranking.loops import compare_tiles, keep_best
from tasks.ranking.queries import Queries, contests, true_scores
from tasks.ranking.ranks import Counts, TripleRanks, check_finite

MEMORY = 1 << 30
"""Bytes that a ranking may use, beside its arguments and a block of entities."""


def rank_queries(
    queries: Queries,
    truth: Counts,
    entities: EntityBlocks,
    known: Known | None = None,
    counted: Array | None = None,
    memory: int = MEMORY,
) -> TripleRanks:
    """Rank the true entity of each query among all entities, without others that are known to be true.

    Entities are passed over once for the true ones' scores, and once for each batch of queries.

    Args:
        queries: n of them.
        truth: int64 (n,), their true entities.
        entities: N of them.
        known: entities that do not count, a list for each query (`KnownTriples`); the true one may be among them.
        counted: bool (N,): others do not count either, such as those that training never saw; None: all count.
        memory: bytes, beside the arguments and a block of entities: a query takes 4 w, twice that with a scale, and 80.

    Raises RecipeError: a score is NaN or infinite.
    """
    scores = true_scores(queries, truth, entities)
    check_finite(int(np.count_nonzero(~np.isfinite(scores))), len(scores))
    counts = np.zeros((4, len(queries)), np.int64)
    for rows, contest in contests(queries, known, entities, memory):
        of_batch = np.zeros((4, contest.num_padded), np.int64)
        true = contest.padded(truth[rows], -1), contest.padded(scores[rows], 0)
        contest.meet(entities, counted, compare_tiles, *true, of_batch)
        counts[:, rows] = of_batch[:, : rows.stop - rows.start]
    better, equal, candidates, bad = counts
    check_finite(int(bad.sum()), int(candidates.sum()))
    return TripleRanks(better, equal, candidates)


def rank_candidates(
    queries: Queries, truth: Counts, candidates: Array, gather: Callable[[Counts], Tensor | Array], memory: int = MEMORY
) -> TripleRanks:
    """Rank the true entity of each query among candidates of its own, as OGB does.

    Args:
        queries: n of them.
        truth: int64 (n,), their true entities.
        candidates: id (n, K), entities; the true one, if it is among them, is not compared with itself.
        gather: returns the rows of entities, int64 (m,), as float32 (m, w).
        memory: bytes, beside the arguments, and what `gather` uses while it works: a candidate takes 4 w and 5.

    Raises RecipeError: a score is NaN or infinite.
    """
    num_candidates = candidates.shape[1]
    counts, bad = np.zeros((3, len(queries)), np.int64), 0
    batch = max(1, memory // ((4 * queries.width + 32) * (num_candidates + 1)))
    for rows in blocks(len(queries), batch):
        part, own = queries.part(rows), candidates[rows]
        true, scores = np.empty((len(own), 1), np.float32), np.empty(own.shape, np.float32)
        part.score_own(float_rows(gather(truth[rows])), true)
        part.score_own(float_rows(gather(own.reshape(-1).astype(np.int64))), scores)
        others = own != truth[rows, None]
        bad += int(np.count_nonzero(~np.isfinite(true))) + int(np.count_nonzero(~np.isfinite(scores) & others))
        counts[:, rows] = [
            np.count_nonzero(which & others, axis=1) for which in (scores > true, scores == true, others)
        ]
    check_finite(bad, counts[2].sum() + len(queries))
    return TripleRanks(*counts)


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
