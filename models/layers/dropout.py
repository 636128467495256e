"""Dropout as a module, and keys for kernels that hash random bits of their own."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from models.kernels.dense.dropout import dropout


def draw_key() -> int:
    """Return a key for kernels that derive their own random bits; drawn from torch's CPU generator.

    A step seeds that generator, and recomputed layers get its state back: so they draw the same keys.
    """
    return int(torch.randint(2**31 - 1, ()))


class Dropout(nn.Module):
    """nn.Dropout through the kernel, whose bits are hashed from a key of torch's generator and kept nowhere."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        """Drop while training."""
        return dropout(x, self.rate) if self.training and self.rate else x
