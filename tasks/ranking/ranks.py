"""How true entities compare with the others, and their ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from configs.errors import RecipeError

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class TripleRanks:
    """How true entities compare with the others, int64 (n,) each."""

    better: Counts
    """Entities that score higher than the true one."""
    equal: Counts
    """Others that score the same."""
    candidates: Counts
    """Entities that it was compared with."""

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.better)

    def taken(self, rows: NDArray[np.bool_]) -> TripleRanks:
        """Return some of them: bool (n,)."""
        return TripleRanks(self.better[rows], self.equal[rows], self.candidates[rows])

    @property
    def optimistic(self) -> Counts:
        """Ranks from 1, the true one before its equals."""
        return 1 + self.better

    @property
    def pessimistic(self) -> Counts:
        """Ranks from 1, the true one behind its equals."""
        return 1 + self.better + self.equal

    @property
    def mean(self) -> NDArray[np.float64]:
        """Ranks from 1, the true one amid its equals, float64 (n,): PyKEEN's "realistic" rank, LibKGE's for ties."""
        return 1 + self.better + 0.5 * self.equal

    @classmethod
    def joined(cls, parts: Sequence[TripleRanks]) -> TripleRanks:
        """Return the ranks of several lists of queries, such as those of tails and those of heads."""
        names = ("better", "equal", "candidates")
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def check_finite(bad: int, total: int) -> None:
    """Raise RecipeError if some of so many scores are NaN or infinite: no metric means anything then."""
    if bad:
        raise RecipeError(
            f"{bad:,} of {total:,} scores are NaN or infinite: training diverged; "
            "lower train.learning_rate, or set train.clip_norm=1.0"
        )
