"""Margins between true and drawn triples."""

from __future__ import annotations

from torch import Tensor

from configs.registry import TRIPLE_LOSSES
from models.triple_losses.base import TripleLoss


@TRIPLE_LOSSES.register("margin")
class Margin(TripleLoss):
    """What a drawn triple's score lacks of being lower than the true one's by the margin."""

    def of_drawn(self, true: Tensor, drawn: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """max(0, margin - s_true + s_drawn), a mean over the drawn ones."""
        size = max(1, drawn.numel())
        lacking = (drawn - true[:, None] + self.config.margin).clamp_(min=0)
        by_drawn = (lacking > 0).to(true.dtype).div_(size)
        return lacking.sum() / size, -by_drawn.sum(1), by_drawn
