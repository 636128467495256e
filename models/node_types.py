"""A map for each type of nodes: their features need not mean the same."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from models.kernels.dense import Linear


class TypedLinear(nn.Module):
    """y_v = W_t x_v + b_t, t the type of v. Where a type has no features, x_v = 0, and b_t is its vector."""

    def __init__(self, in_dim: int, out_dim: int, num_types: int) -> None:
        super().__init__()
        self.maps = nn.ModuleList(Linear(in_dim, out_dim) for _ in range(num_types))

    def forward(self, x: Tensor, node_type: Tensor) -> Tensor:
        """Map rows x (n, in_dim) of types int64 (n,), each below num_types, to (n, out_dim)."""
        order = torch.argsort(node_type, stable=True)
        sizes = torch.bincount(node_type, minlength=len(self.maps)).tolist()
        parts = torch.split(x[order], sizes)
        y = torch.cat([linear(part) for linear, part in zip(self.maps, parts, strict=True)])
        return torch.empty_like(y).index_copy(0, order, y)
