"""What a loss of triples is. A new one is one file: a `Config`, and `of_drawn` with its gradients by hand.

With `of_all` it is for queries that are compared with all entities, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor


@dataclass(frozen=True)
class Targets:
    """Which entities are true for which queries."""

    rows: Tensor
    """int64 (m,), numbers of queries."""
    columns: Tensor
    """int64 (m,), a true entity of each."""
    smoothing: float = 0.0
    """Share of the truth that is dealt out over all entities (label smoothing)."""


class TripleLoss:
    """A mean over queries, and its gradients."""

    def __init__(self, config: Any) -> None:
        self.config = config
        self.entities_a_drawn = 1.0
        """How many entities there are for each that is drawn; set by the training."""

    def of_drawn(self, true: Tensor, drawn: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the loss, (), and its gradients; that by `drawn` may take its place.

        Args:
            true: scores of the true entities, float32 (n,).
            drawn: scores of others, (n, K); -inf: does not count.
        """
        raise AssertionError(f"{type(self).__name__} defines no of_drawn")

    def of_all(self, scores: Tensor, targets: Targets) -> tuple[Tensor, Tensor]:
        """Return the loss, (), and its gradient, which may take the place of `scores`, float32 (n, N)."""
        raise AssertionError(f"{type(self).__name__} defines no of_all")
