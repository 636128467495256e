"""Where what is right stands in ranked lists."""

from __future__ import annotations

from dataclasses import dataclass

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
