"""Refusals of arguments that do not fit together: kernels read memory by the shapes that they are told."""

from __future__ import annotations

import torch
from torch import Tensor


def check_shape(name: str, tensor: Tensor, *shape: int | str) -> None:
    """Refuse another shape.

    Args:
        name: the argument's.
        tensor: what was passed.
        shape: sizes; a name in place of one stands for any.

    Raises:
        ValueError: the shape is another.
    """
    given = tuple(tensor.shape)
    if len(given) != len(shape) or any(
        actual != size and not isinstance(size, str) for actual, size in zip(given, shape, strict=True)
    ):
        expected = ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "")
        raise ValueError(f"{name} must be ({expected}), not {given}")


def check_rows(name: str, tensor: Tensor, count: int) -> None:
    """Refuse what is neither rows (count, D) nor rows of heads (count, H, D)."""
    if tensor.dim() not in (2, 3) or len(tensor) != count:
        raise ValueError(f"{name} must be ({count}, D) or ({count}, H, D), not {tuple(tensor.shape)}")


def check_int64(name: str, tensor: Tensor) -> None:
    """Refuse another dtype."""
    if tensor.dtype != torch.int64:
        raise ValueError(f"{name} must be of {torch.int64}, not {tensor.dtype}")
