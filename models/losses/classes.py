"""Losses of classes: one of several, or yes and no, once or in several columns."""

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
