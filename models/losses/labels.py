"""Losses of labels: classes, one of several, or yes and no, once or in several columns; and numbers.

Scores and targets of numbers come in the standard deviations of the labels of the training split.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from configs.registry import LOSSES
from models.losses.base import LabelLoss


@LOSSES.register("cross_entropy")
class CrossEntropy(LabelLoss):
    """-log of the right class's share of e^score."""

    def each(self, scores: Tensor, target: Tensor) -> Tensor:
        """(n, C), int64 (n,) -> (n,)."""
        return F.cross_entropy(scores, target, reduction="none", label_smoothing=self.config.label_smoothing)


@LOSSES.register("binary")
class Binary(LabelLoss):
    """-log sigmoid of the score where the label is 1, of its negative where it is 0."""

    def each(self, scores: Tensor, target: Tensor) -> Tensor:
        """(n, T), (n, T) -> (n, T)."""
        costs = F.binary_cross_entropy_with_logits(scores, target, reduction="none")
        weight = self.config.pos_weight
        return costs if weight == 1 else costs * torch.where(target > 0.5, weight, 1.0)


@LOSSES.register("focal")
class Focal(LabelLoss):
    """-(1 - p)^gamma log p, p the probability of the right class."""

    def each(self, scores: Tensor, target: Tensor) -> Tensor:
        """(n, C), int64 (n,) -> (n,); (n, T), (n, T) -> (n, T)."""
        if target.is_floating_point():
            costs = F.binary_cross_entropy_with_logits(scores, target, reduction="none")
        else:
            costs = F.cross_entropy(scores, target, reduction="none")
        return (-torch.expm1(-costs)) ** self.config.gamma * costs  # 1 - p, exact also where p is near 1


@LOSSES.register("mse")
class SquaredError(LabelLoss):
    """(y - f)^2: what comes out is the mean."""

    def each(self, scores: Tensor, target: Tensor) -> Tensor:
        """(n, T), (n, T) -> (n, T)."""
        return F.mse_loss(scores, target, reduction="none")


@LOSSES.register("mae")
class AbsoluteError(LabelLoss):
    """|y - f|: what comes out is the median."""

    def each(self, scores: Tensor, target: Tensor) -> Tensor:
        """(n, T), (n, T) -> (n, T)."""
        return F.l1_loss(scores, target, reduction="none")


@LOSSES.register("huber")
class Huber(LabelLoss):
    """(y - f)^2 / 2 up to an error of delta, and delta (|y - f| - delta / 2) beyond."""

    def each(self, scores: Tensor, target: Tensor) -> Tensor:
        """(n, T), (n, T) -> (n, T)."""
        return F.huber_loss(scores, target, reduction="none", delta=self.config.delta)


@LOSSES.register("quantile")
class Quantile(LabelLoss):
    """max(q (y - f), (q - 1) (y - f)): a share q of the labels lies below what comes out."""

    def each(self, scores: Tensor, target: Tensor) -> Tensor:
        """(n, T), (n, T) -> (n, T)."""
        error, q = target - scores, self.config.q
        return torch.maximum(q * error, (q - 1) * error)
