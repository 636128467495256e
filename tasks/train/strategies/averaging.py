"""Gradients that are averaged over ranks."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel


def averaging(model: nn.Module) -> nn.Module:
    """Return the model so that its backward pass averages the ranks' gradients; all ranks together.

    By the order of its first gradients DistributedDataParallel lays out anew what it sends, and with more than two
    ranks the place of a number decides in which order they are added. So a pass with zeros comes first: a training that
    goes on has the layout, and thereby the last bits, of one that was not interrupted.
    """
    # torch 2.13 has a word of its own for the buffers before each step; before it the general one said so.
    parameters = inspect.signature(DistributedDataParallel.__init__).parameters
    left_alone = "forward_sync_buffers" if "forward_sync_buffers" in parameters else "broadcast_buffers"
    options: dict[str, Any] = {"gradient_as_bucket_view": True, left_alone: False}
    wrapped = DistributedDataParallel(model, **options)
    wrapped.module = _Zero(model)
    wrapped().backward()
    wrapped.module = model
    model.zero_grad()
    return wrapped


class _Zero(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self) -> Tensor:
        sums = [parameter.sum().float() for parameter in self.model.parameters() if parameter.requires_grad]
        return 0.0 * torch.stack(sums).sum()
