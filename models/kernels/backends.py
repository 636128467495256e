"""Which of an operator's implementations takes a tensor."""

from __future__ import annotations

import importlib.util
from functools import cache

import torch
from torch import Tensor

from models.kernels.vector import has_kernels


@cache
def has_triton() -> bool:
    """Whether Triton is installed: it comes with torch's CUDA wheels, not with the one for CPUs."""
    return importlib.util.find_spec("triton") is not None


def choose(x: Tensor) -> str:
    """Return `numba` or `triton` for rows that their kernels read, on a CPU or GPU, `torch` for all else.

    Both read float32 and bfloat16, Triton's float16 too; all add up in float32.
    """
    if has_kernels(x):
        return "numba"
    on_gpu = x.is_cuda and x.dtype in (torch.float32, torch.bfloat16, torch.float16)
    return "triton" if on_gpu and has_triton() else "torch"
