"""Where what is right stands in ranked lists."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from models.kernels.threads import even_rows, run_rows
from tasks.arrays import Array

MOST_PLACES = 1000
"""Of a row, so many of what is right are looked at: those that stand first. Metrics ask for no more places."""


@dataclass(frozen=True)
class Lists:
    """The first candidates of n tasks."""

    candidates: Array
    """int64 (n, K): nodes; -1 behind the last candidate that there is."""
    scores: Array
    """float32 (n, K)."""
    right: Array
    """float32 (n, K): 1 where one is right, 0 where not, NaN where nothing is known of the task yet."""


@dataclass(frozen=True)
class RankedRows:
    """n rows, each with a list of candidates of which some are right."""

    places: Array
    """float64 (n, M): places of what is right, from 1, ascending; infinite behind the last. Those of equal scores are
    in the middle of their places."""
    counts: Array
    """int64 (n,): how many candidates are right, at least 1."""
    lists: Lists | None = None
    """The first candidates of these rows, and of those that nothing is right for."""

    def __len__(self) -> int:
        return len(self.counts)

    def taken(self, rows: Array) -> RankedRows:
        """Return some rows, int64 (m,)."""
        return RankedRows(self.places[rows], self.counts[rows])

    @classmethod
    def joined(cls, parts: list[RankedRows]) -> RankedRows:
        """Return all rows of some parts, end to end."""
        width = max((part.places.shape[1] for part in parts), default=1)
        places = np.full((sum(map(len, parts)), width), np.inf)
        first = 0
        for part in parts:
            places[first : first + len(part), : part.places.shape[1]] = part.places
            first += len(part)
        return cls(places, np.concatenate([part.counts for part in parts] or [np.empty(0, np.int64)]))


def places_of(scores: Array, indptr: Array, positives: Array) -> RankedRows:
    """Rank what is right among all candidates of its row, by scores float32 (n, C); -inf: no candidate.

    The k-th best of a row's right ones has the place of its score among the candidates that are not right (in the
    middle of those of equal score), and k - 1 more. `indptr`, int64 (n + 1,): of row i, positives indptr[i] to indptr[i
    + 1]; `positives`, int64 (m,): columns of what is right, one at least a row, each once.
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
        own = row[positives[indptr[i] : indptr[i + 1]]]
        own.sort()
        own = own[::-1]
        for k in range(min(len(own), places.shape[1])):
            score = own[k]
            above = level = 0
            for c in range(len(row)):
                above += row[c] > score
                level += row[c] == score
            for other in own:
                above -= other > score
                level -= other == score
            if score == -np.inf:  # what is no candidate stands behind all that are
                level = 0
            places[i, k] = 1 + above + level / 2 + k
