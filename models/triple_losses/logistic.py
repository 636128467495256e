"""Binary cross entropy: each triple by itself."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import softplus

from configs.registry import TRIPLE_LOSSES
from models.kernels.dense.sigmoid_rows import false_loss_
from models.triple_losses.base import Targets, TripleLoss


@TRIPLE_LOSSES.register("logistic")
class Logistic(TripleLoss):
    """-log sigmoid of true triples' scores, and of the others' negated ones."""

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
