"""Losses of batches whose seeds carry weights: sums over the seeds, weight times loss."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from models.losses import label_weight

WeightedLoss = Callable[..., Tensor]


def weighted_cross_entropy(
    scores: Tensor, target: Tensor, weight: Tensor, class_weight: Tensor | None = None
) -> Tensor:
    """Return sum_v w_v CE_v: scores (n, C), target int64 (n,), weight (n,); -1 is no label and costs nothing.

    `class_weight` (C,): as in `models.losses`.
    """
    return (weight * F.cross_entropy(scores, target, weight=class_weight, ignore_index=-1, reduction="none")).sum()


def weighted_binary_cross_entropy(
    scores: Tensor, target: Tensor, weight: Tensor, class_weight: Tensor | None = None
) -> Tensor:
    """Return sum_v w_v times the mean logistic loss of v's labels: scores and target (n, T), NaN is no label.

    `class_weight` (T, 2): as in `models.losses`.
    """
    return _weighted_mean(F.binary_cross_entropy_with_logits, scores, target, weight, class_weight)


def weighted_squared_error(scores: Tensor, target: Tensor, weight: Tensor) -> Tensor:
    """Return sum_v w_v times the mean squared error of v's labels: scores and target (n, T), NaN is no label."""
    return _weighted_mean(F.mse_loss, scores, target, weight)


def _weighted_mean(
    loss: Callable[..., Tensor], scores: Tensor, target: Tensor, weight: Tensor, class_weight: Tensor | None = None
) -> Tensor:
    known = ~torch.isnan(target)
    losses = loss(scores, torch.where(known, target, 0.0), reduction="none")
    if class_weight is not None:
        losses = losses * label_weight(target, class_weight)
    return (weight * torch.where(known, losses, 0.0).sum(1) / known.sum(1).clamp(min=1)).sum()


WEIGHTED_LOSSES: dict[str, WeightedLoss] = {
    "multiclass": weighted_cross_entropy,
    "binary": weighted_binary_cross_entropy,
    "multilabel": weighted_binary_cross_entropy,
    "regression": weighted_squared_error,
}
"""By task type, as models.losses.LOSSES; loaders that weigh their seeds are for node tasks."""
