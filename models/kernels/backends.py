"""Which of an operator's implementations takes a tensor."""

from __future__ import annotations

import importlib.util
from functools import cache

import torch
from torch import Tensor

from models.kernels.simd.vector import has_kernels


@cache
def has_triton() -> bool:
    """Whether Triton is installed: it comes with torch's CUDA wheels, not with the one for CPUs."""
    return importlib.util.find_spec("triton") is not None


_takes_triton = False


def take_triton(enabled: bool) -> None:
    """Say whether Triton's kernels compute on GPUs, in the whole process; without a word torch's functions do.

    None of these kernels has run on a GPU yet.
    """
    global _takes_triton
    _takes_triton = enabled


def on_triton(x: Tensor) -> bool:
    """Whether Triton's kernels take rows: on a GPU, of a dtype that they read, where they are wanted and there."""
    kinds = (torch.float32, torch.bfloat16, torch.float16)
    return _takes_triton and x.is_cuda and x.dtype in kinds and has_triton()


def widen(rows: Tensor) -> Tensor:
    """Return rows of 16 bits in float32, for torch's functions to add up, others as they are.

    torch adds edge after edge in the rows' own dtype: in bfloat16 a sum of 256 ones stays 256, whatever comes after.
    """
    return rows.float() if rows.dtype in (torch.bfloat16, torch.float16) else rows


def choose(x: Tensor) -> str:
    """Return `numba` or `triton` for rows that their kernels read, on a CPU or GPU, `torch` for all else.

    Both read float32 and bfloat16, Triton's float16 too; all add up in float32, `torch` where rows are `widen`ed.
    """
    if has_kernels(x):
        return "numba"
    return "triton" if on_triton(x) else "torch"
