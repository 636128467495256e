"""Products of complex numbers in halves, against torch's complex numbers."""

from __future__ import annotations

import pytest
import torch

from models.kernels.dense.complex_products import complex_products


@pytest.mark.parametrize("half", [1, 7, 33, 64, 100, 250])
@pytest.mark.parametrize("conjugate", [False, True])
@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_products(half: int, conjugate: bool, kind: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(half)
    a, b = torch.randn(2, 13, 2 * half, generator=generator, dtype=kind)
    other = torch.complex(*b.chunk(2, 1))
    wanted = torch.complex(*a.chunk(2, 1)) * (other.conj() if conjugate else other)
    found = complex_products(a, b, conjugate=conjugate)
    torch.testing.assert_close(found, torch.cat([wanted.real, wanted.imag], 1))


def test_gradients_come_from_torch_where_they_are_asked_for() -> None:
    a, b = (torch.randn(3, 8, dtype=torch.float64, requires_grad=True) for _ in range(2))
    assert torch.autograd.gradcheck(complex_products, (a, b))
    complex_products(a.float().detach().requires_grad_(), b.float()).sum().backward()


def test_odd_widths_and_unlike_rows_are_refused() -> None:
    with pytest.raises(AssertionError, match="two columns"):
        complex_products(torch.zeros(2, 3), torch.zeros(2, 3))
    with pytest.raises(AssertionError, match="rows"):
        complex_products(torch.zeros(2, 4), torch.zeros(3, 4))
