"""Losses of numbers. Scores and targets come in the standard deviations of the labels of the training split."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from configs.registry import LOSSES
from models.losses.base import LabelLoss


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
