"""Which implementation takes which rows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from models.kernels import backends


def rows(device: str, dtype: torch.dtype) -> Any:
    """What is asked of a tensor, without a GPU to hold it."""
    return SimpleNamespace(device=torch.device(device), is_cuda=device == "cuda", dtype=dtype)


@pytest.mark.parametrize(
    ("device", "dtype", "backend"),
    [
        ("cpu", torch.float32, "numba"),
        ("cpu", torch.bfloat16, "numba"),
        ("cpu", torch.float16, "torch"),
        ("cpu", torch.float64, "torch"),
        ("cuda", torch.float32, "triton"),
        ("cuda", torch.bfloat16, "triton"),
        ("cuda", torch.float16, "triton"),
        ("cuda", torch.float64, "torch"),
    ],
)
def test_kernels_take_what_they_read(
    monkeypatch: pytest.MonkeyPatch, device: str, dtype: torch.dtype, backend: str
) -> None:
    plain = "torch" if backend == "triton" else backend
    monkeypatch.setattr(backends, "has_triton", lambda: True)
    assert backends.choose(rows(device, dtype)) == plain  # as long as nobody asks for Triton
    monkeypatch.setattr(backends, "_takes_triton", True)
    assert backends.choose(rows(device, dtype)) == backend
    monkeypatch.setattr(backends, "has_triton", lambda: False)
    assert backends.choose(rows(device, dtype)) == plain
