"""A map for each type of nodes: their features need not mean the same."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from models.kernels.dense.linear import Linear


def type_sizes(types: Tensor, num_types: int, counts: tuple[int, ...] | None) -> list[int]:
    """Return how many of `types`, int64 (n,), are 0, 1, ..., num_types - 1; `counts`: what is known of that."""
    if counts is None:
        sizes: list[int] = torch.bincount(types, minlength=num_types).tolist()
        return sizes
    return [*counts, *[0] * (num_types - len(counts))]


class TypedLinear(nn.Module):
    """y_v = W_t x_v + b_t, t the type of v. Where a type has no features, x_v = 0, and b_t is its vector."""

    def __init__(self, in_dim: int, out_dim: int, num_types: int) -> None:
        super().__init__()
        self.maps = nn.ModuleList(Linear(in_dim, out_dim) for _ in range(num_types))

    def forward(self, x: Tensor, node_type: Tensor, counts: tuple[int, ...] | None = None) -> Tensor:
        """Map rows x (n, in_dim) of types int64 (n,), each below num_types, to (n, out_dim).

        `counts`: how many are of types 0, 1, ...; without it a GPU is asked, and waited for.
        """
        order = torch.argsort(node_type, stable=True)
        parts = torch.split(x[order], type_sizes(node_type, len(self.maps), counts))
        y = torch.cat([linear(part) for linear, part in zip(self.maps, parts, strict=True)])
        return torch.empty_like(y).index_copy(0, order, y)
