"""Where the tests of GPUs run: on the first one. They are skipped without one, and where `python -m tests.gpu` is not
what runs them.

With GRAPHMILL_TRY_GPU_TESTS=1 they run on the CPU instead, with small tables: that says nothing about GPUs, only that
the tests themselves work.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from models.kernels.backends import has_triton, take_triton
from tests.needs import needs

HAS_GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda", 0) if HAS_GPU else torch.device("cpu")
_TRIED = os.environ.get("GRAPHMILL_TRY_GPU_TESTS") == "1"
MARKS = [
    pytest.mark.skipif(not (HAS_GPU or _TRIED), reason="torch sees no GPU, or this is not `python -m tests.gpu`"),
    pytest.mark.timeout(600),
    # What torch and Triton warn of on a GPU is shown, and ends no test: "Synchronization debug mode is a prototype".
    pytest.mark.filterwarnings("default"),
]


KERNELS = pytest.mark.parametrize(
    "kernels",
    ["torch", pytest.param("triton", marks=needs("Triton", has_triton()))],
)


@contextmanager
def computing_with(kernels: str) -> Iterator[None]:
    """Pass messages by torch's functions or Triton's kernels."""
    take_triton(kernels == "triton")
    try:
        yield
    finally:
        take_triton(False)


@contextmanager
def never_waiting() -> Iterator[None]:
    """Raise RuntimeError where the CPU waits for the GPU inside."""
    if not HAS_GPU:
        yield
        return
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")
