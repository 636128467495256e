"""What an explainer is: a class in a file of `methods/`, registered in EXPLAINERS, with its options in `configs.py`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tasks.arrays import Array

if TYPE_CHECKING:
    from tasks.explain.scored import ScoredNeighborhood

Part = Literal["edge", "node", "table", "feature", "edge feature"]


@dataclass(frozen=True)
class Effects:
    """What parts of one kind did to a score: n of them."""

    part: Part
    effect: Array
    """float64 (n,): of a part that is left out, score minus score without it; else as the method says."""
    place: Array
    """int64 (n,): the edge's number among the neighbourhood's units, else the local number of the node; -1: of what is
    asked about itself, or of all."""
    feature: Array | None = None
    """int64 (n,): number of the column (`ScoredNeighborhood.names`)."""
    without: Array | None = None
    """float64 (n,): the score without the part."""
    odds: Array | None = None
    """float64 (n,): of probabilities the change of the logarithm of their odds, which tells more near 0 and 1: parts
    are ordered by it."""
    count: Array | None = None
    """int64 (n,): of neighbours, the edges that go with them, ..."""
    degree: Array | None = None
    """int64 (n,): ... and all of theirs in the graph."""

    @classmethod
    def left_out(cls, part: Part, place: Array, score: Array, without: Array, **more: Array) -> Effects:
        """Return what parts did that were left out: by `AskedScore.scores` (2,) with all, and (n, 2) without each."""
        effect, odds = (score - without).T
        return cls(part, effect, place, without=without[:, 0], odds=None if np.isnan(score[1]) else odds, **more)

    @property
    def moved(self) -> Array:
        """By how much each part moved the score, up or down, float64 (n,)."""
        return self.effect if self.odds is None else self.odds


@dataclass(frozen=True)
class Explanation:
    """Why one score is what it is."""

    score: float
    """What is explained, in the neighbourhood that was looked at."""
    effects: list[Effects]
    notes: list[str] = field(default_factory=list)


class Explainer:
    """Says what moved a score."""

    def __init__(self, config: Any) -> None:
        """`config`: its options, an `ExplainerConfig`."""
        self.config = config

    def explain(self, scored: ScoredNeighborhood) -> Explanation:
        """Explain the score of what the neighbourhood lies around. Raises RecipeError: not of such a model."""
        raise AssertionError(f"{type(self).__name__} defines no explain")
