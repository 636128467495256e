"""What products are computed in, for as long as it was asked for."""

from __future__ import annotations

import pytest
import torch

from models.kernels.dense.products import products_in


def test_products_stay_near_and_it_ends_with_an_error() -> None:
    before = torch.get_float32_matmul_precision()
    a, b = torch.randn(2, 64, 64, generator=torch.Generator().manual_seed(0))
    exact = a.double() @ b.double()
    with products_in("bfloat16"):
        assert torch.get_float32_matmul_precision() == "medium"
        found = a @ b
        with products_in("float32"):
            assert (a @ b - exact).abs().max() < 1e-4
    assert found.dtype == torch.float32
    assert (found - exact).abs().max() < 0.2  # 64 products with errors of 2^-8
    with pytest.raises(RuntimeError, match="out"), products_in("bfloat16"):
        raise RuntimeError("out")
    assert torch.get_float32_matmul_precision() == before
