"""Cross entropy: entities as classes."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from configs.registry import TRIPLE_LOSSES
from models.kernels.dense.softmax_rows import softmax_
from models.triple_losses.base import Targets, TripleLoss


@TRIPLE_LOSSES.register("softmax")
class Softmax(TripleLoss):
    """-log of the true entity's share of e^score, over it and the drawn ones or over all entities."""

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
