"""Ranks what is right among all candidates of its row."""

from __future__ import annotations

import numpy as np
from numba import njit

from models.kernels.threads import even_rows, run_rows
from tasks.arrays import Array
from tasks.evaluators.ranked_rows import MOST_PLACES, RankedRows


def places_of(scores: Array, indptr: Array, positives: Array) -> RankedRows:
    """Rank what is right among all candidates of its row.

    The k-th best of a row's n right ones has the place of its score among the candidates that are not right (in the
    middle of those of equal score), and k - 1 more.

    Args:
        scores: float32 (n, C); -inf: no candidate.
        indptr: int64 (n + 1,): of row i, positives indptr[i] to indptr[i + 1].
        positives: int64 (m,): columns of what is right, one at least a row, each once.
    """
    counts = np.diff(indptr).astype(np.int64)
    width = int(min(MOST_PLACES, counts.max(initial=1)))
    places = np.full((len(counts), width), np.inf)
    run_rows(_rank, even_rows(len(counts)), np.ascontiguousarray(scores), indptr, positives, places)
    return RankedRows(places, counts)


@njit(cache=True, nogil=True)
def _rank(start, stop, scores, indptr, positives, places):  # type: ignore[no-untyped-def]
    """Fill places of rows start..stop - 1."""
    for i in range(start, stop):
        row = scores[i]
        right = row[positives[indptr[i] : indptr[i + 1]]]
        right.sort()
        right = right[::-1]
        for k in range(min(len(right), places.shape[1])):
            score = right[k]
            above = level = 0
            for c in range(len(row)):
                above += row[c] > score
                level += row[c] == score
            for other in right:
                above -= other > score
                level -= other == score
            if score == -np.inf:  # what is no candidate stands behind all that are
                level = 0
            places[i, k] = 1 + above + level / 2 + k
