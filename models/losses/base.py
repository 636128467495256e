"""What a loss is. A new one is one file: a `Config`, and `each` where it is of labels, `of_drawn` where it is of pairs.

A label that is missing costs nothing: -1 of a class, NaN of a number. No loss asks how many labels there are before it
goes on: that would wait for a GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


class LabelLoss:
    """The mean over labels of what each costs."""

    def __init__(self, config: Any, class_weight: Tensor | None = None) -> None:
        """`class_weight`: what labels of a class count, float32 (C,); of columns, for 0 and for 1, (T, 2)."""
        self.config, self.class_weight = config, class_weight

    def each(self, scores: Tensor, target: Tensor) -> Tensor:
        """Return what each label costs.

        Of one class of several: scores (n, C), target int64 (n,) -> (n,). Of columns of yes or no, or of numbers: both
        float32 (n, T) -> (n, T). Where a label is missing target is 0, and what is returned does not count.
        """
        raise AssertionError(f"{type(self).__name__} defines no each")

    def __call__(self, scores: Tensor, target: Tensor, num_seeds: int) -> Tensor:
        """Return the mean over the labels that exist, ().

        It is over labels, not over weights, so that batches of a split add up to the same whatever classes each has.
        """
        is_class = not target.is_floating_point()
        exists = target >= 0 if is_class else ~torch.isnan(target)
        target = target.clamp(min=0) if is_class else torch.where(exists, target, 0.0)
        costs = self.each(scores, target)
        if self.class_weight is not None:
            weight = self.class_weight
            costs = costs * (weight[target] if is_class else torch.where(target > 0.5, weight[:, 1], weight[:, 0]))
        return torch.where(exists, costs, 0.0).sum() / exists.sum().clamp(min=1)


@dataclass(frozen=True)
class Targets:
    """Which entities are true for which queries."""

    rows: Tensor
    """int64 (m,), numbers of queries."""
    columns: Tensor
    """int64 (m,), a true entity of each."""
    smoothing: float = 0.0
    """Share of the truth that is dealt out over all entities (label smoothing)."""


class PairLoss:
    """A mean over true pairs or triples, each compared with drawn ones, and its gradients by hand.

    With `of_all` it is for queries that are compared with all entities, too.
    """

    def __init__(self, config: Any, class_weight: Tensor | None = None) -> None:
        self.config = config
        self.entities_a_drawn = 1.0
        """How many entities there are for each that is drawn, where that counts; set by the training."""

    def of_drawn(self, true: Tensor, drawn: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the loss, (), and its gradients; that by `drawn` may take its place.

        Args:
            true: scores of the true ones, float32 (n,).
            drawn: scores of others, (n, K); -inf: does not count.
        """
        raise AssertionError(f"{type(self).__name__} defines no of_drawn")

    def of_all(self, scores: Tensor, targets: Targets) -> tuple[Tensor, Tensor]:
        """Return the loss, (), and its gradient, which may take the place of `scores`, float32 (n, N)."""
        raise AssertionError(f"{type(self).__name__} defines no of_all")

    def __call__(self, scores: Tensor, target: Tensor, num_seeds: int) -> Tensor:
        """Return the loss, (): scores (n,) of training edges, and behind them of as many drawn pairs for each."""
        return self.compare(scores[:num_seeds], scores[num_seeds:].view(num_seeds, -1))

    def compare(self, true: Tensor, drawn: Tensor) -> Tensor:
        """Return the loss, (), for autograd; arguments as of `of_drawn`."""
        loss: Tensor = _Compared.apply(self, true, drawn)  # type: ignore[no-untyped-call]
        return loss


class _Compared(torch.autograd.Function):
    """A loss whose gradients come with it."""

    @staticmethod
    def forward(ctx: Any, loss: PairLoss, true: Tensor, drawn: Tensor) -> Tensor:
        value, by_true, by_drawn = loss.of_drawn(true, drawn.clone())
        ctx.save_for_backward(by_true, by_drawn)
        return value

    @staticmethod
    def backward(ctx: Any, *by_loss: Tensor) -> tuple[None, Tensor, Tensor]:
        by_true, by_drawn = ctx.saved_tensors
        return None, by_loss[0] * by_true, by_loss[0] * by_drawn
