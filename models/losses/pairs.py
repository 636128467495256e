"""Losses of true pairs and triples against drawn ones: as classes, each by itself, or by their difference."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import softplus

from configs.registry import LOSSES
from models.kernels.dense.loss_rows import false_loss_, softmax_
from models.losses.base import PairLoss, Targets


@LOSSES.register("softmax")
class Softmax(PairLoss):
    """-log of the true one's share of e^score, over it and the drawn ones or over all entities."""

    def of_drawn(self, true: Tensor, drawn: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """log sum e^s - s_true, and the shares less the truth."""
        weight = self.config.negative_weight
        moved = true - math.log(self.entities_a_drawn if weight == "all" else weight)
        total = softmax_(drawn, moved)
        return (total - moved).mean(), (moved - total).exp_().sub_(1).div_(len(true)), drawn.div_(len(true))

    def of_all(self, scores: Tensor, targets: Targets) -> tuple[Tensor, Tensor]:
        """The same; of several true entities each has an equal part of the truth."""
        count, width = scores.shape
        members = torch.bincount(targets.rows, minlength=count).to(scores.dtype)
        truth = (1 - targets.smoothing) / members[targets.rows]
        told = scores.new_zeros(count).index_add_(0, targets.rows, truth * scores[targets.rows, targets.columns])
        if targets.smoothing:
            told += targets.smoothing * scores.mean(1)
        total = softmax_(scores)
        if targets.smoothing:
            scores -= targets.smoothing / width
        scores.index_put_((targets.rows, targets.columns), -truth, accumulate=True)
        return (total - told).mean(), scores.div_(count)


@LOSSES.register("logistic")
class Logistic(PairLoss):
    """-log sigmoid of true ones' scores, and of the others' negated ones."""

    def of_drawn(self, true: Tensor, drawn: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Half for the true one, half for the drawn ones, whose weights are no part of the gradient."""
        config, count = self.config, 2 * len(true)
        moved = true + config.margin
        loss = softplus(-moved).sum() / count
        loss += false_loss_(drawn, config.negative_weight / count, config.margin, config.adversarial)
        return loss, moved.neg_().sigmoid_().neg_().div_(count), drawn

    def of_all(self, scores: Tensor, targets: Targets) -> tuple[Tensor, Tensor]:
        """A mean over all entities."""
        scores += self.config.margin
        least = targets.smoothing / scores.shape[1]
        truth = 1 - targets.smoothing
        loss = softplus(scores).sum() - least * scores.sum()
        loss -= truth * scores[targets.rows, targets.columns].sum()
        by_scores = scores.sigmoid_().sub_(least)
        minus = by_scores.new_full((), -truth).expand(len(targets.rows))
        by_scores.index_put_((targets.rows, targets.columns), minus, accumulate=True)
        return loss / by_scores.numel(), by_scores.div_(by_scores.numel())


@LOSSES.register("margin")
class Margin(PairLoss):
    """What a drawn triple's score lacks of being lower than the true one's by the margin."""

    def of_drawn(self, true: Tensor, drawn: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """max(0, margin - s_true + s_drawn), a mean over the drawn ones that count."""
        size = _counted(drawn)
        lacking = (drawn - true[:, None] + self.config.margin).clamp_(min=0)
        by_drawn = (lacking > 0).to(true.dtype).div_(size)
        return lacking.div_(size).sum(), -by_drawn.sum(1), by_drawn


@LOSSES.register("bpr")
class Bpr(PairLoss):
    """-log sigmoid of how much higher the true one's score is than a drawn one's."""

    def of_drawn(self, true: Tensor, drawn: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """log(1 + e^(s_drawn - s_true)), a mean over the drawn ones that count."""
        size = _counted(drawn)
        above = drawn.sub_(true[:, None])
        loss = softplus(above).div_(size).sum()
        by_drawn = above.sigmoid_().div_(size)
        return loss, -by_drawn.sum(1), by_drawn


def _counted(drawn: Tensor) -> Tensor:
    """Return what each drawn one's loss is divided by, so that a row's are a mean, as all rows' are: (n, 1)."""
    return (drawn > -torch.inf).sum(1, keepdim=True).clamp_(min=1).mul_(max(1, len(drawn))).to(drawn.dtype)
