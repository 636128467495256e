"""Which implementation takes which rows, and what products are computed in."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from models.kernels import backends
from models.kernels.dense.products import products_in


def rows(device: str, dtype: torch.dtype) -> Any:
    """What is asked of a tensor, without a GPU to hold it."""
    return SimpleNamespace(device=torch.device(device), is_cuda=device == "cuda", dtype=dtype)


@pytest.mark.parametrize(
    ("dtype", "on_cpu", "on_gpu"),
    [
        (torch.float32, "numba", "triton"),
        (torch.bfloat16, "numba", "triton"),
        (torch.float16, "torch", "triton"),
        (torch.float64, "torch", "torch"),
    ],
)
def test_kernels_take_what_they_read(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, on_cpu: str, on_gpu: str
) -> None:
    for is_there, is_asked_for in ((True, False), (True, True), (False, True)):
        monkeypatch.setattr(backends, "has_triton", lambda is_there=is_there: is_there)
        monkeypatch.setattr(backends, "_takes_triton", is_asked_for)
        assert backends.choose(rows("cpu", dtype)) == on_cpu
        assert backends.choose(rows("cuda", dtype)) == (on_gpu if is_there and is_asked_for else "torch")


def test_products_stay_near_and_it_ends_with_an_error() -> None:
    before = torch.get_float32_matmul_precision()
    a, b = torch.randn(2, 64, 64, generator=torch.Generator().manual_seed(0))
    exact = a.double() @ b.double()
    with products_in("bfloat16"):
        assert torch.get_float32_matmul_precision() == "medium"
        product = a @ b
        with products_in("float32"):
            assert (a @ b - exact).abs().max() < 1e-4
    assert product.dtype == torch.float32
    assert (product - exact).abs().max() < 0.2  # 64 products with errors of 2^-8
    with pytest.raises(RuntimeError, match="out"), products_in("bfloat16"):
        raise RuntimeError("out")
    assert torch.get_float32_matmul_precision() == before
