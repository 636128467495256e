"""Losses of rows of scores in place, and products of complex rows, against torch in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import softplus

from models.kernels.dense.complex_products import complex_products
from models.kernels.dense.loss_rows import false_loss_, softmax_


def drawn(rows: int, width: int, spread: float) -> Tensor:
    return spread * torch.randn(rows, width, generator=torch.Generator().manual_seed(width))


@pytest.mark.parametrize("width", [1, 5, 63, 64, 65, 200, 1000])
@pytest.mark.parametrize("spread", [0.1, 3.0, 60.0])
@pytest.mark.parametrize("with_beside", [False, True])
def test_shares_and_sums(width: int, spread: float, with_beside: bool) -> None:
    """Minus infinity has no share; float64 goes through torch."""
    scores = drawn(9, width, spread)
    beside = drawn(1, 9, spread)[0] if with_beside else None
    if with_beside:
        scores[1, width // 2] = scores[3, -1] = scores[4] = -torch.inf
    every = scores.double() if beside is None else torch.cat([scores.double(), beside.double()[:, None]], 1)
    for kind in (torch.float32, torch.float64):
        shares = scores.to(kind, copy=True)
        sums = softmax_(shares, None if beside is None else beside.to(kind))
        torch.testing.assert_close(sums.double(), every.logsumexp(1), rtol=1e-6, atol=2e-6)
        torch.testing.assert_close(shares.double(), every.softmax(1)[:, :width], rtol=2e-5, atol=1e-7)
        assert not shares[scores.isinf()].any()


def test_large_scores_do_not_overflow_and_not_a_number_passes() -> None:
    scores = torch.tensor([[1e30, 1e30, -1e30], [-1e30, -1e30, -2e30]])
    softmax_(scores)
    torch.testing.assert_close(scores, torch.tensor([[0.5, 0.5, 0.0], [0.5, 0.5, 0.0]]), atol=1e-6, rtol=0)
    scores = drawn(2, 64, 1.0)
    scores[0, 5] = torch.nan
    assert softmax_(scores.clone()).isnan().tolist() == [True, False]
    false_loss_(scores, 1.0)
    assert scores.isnan().any(1).tolist() == [True, False]


def plain(scores: Tensor, weight: float, margin: float, adversarial: float) -> Tensor:
    counts = torch.isfinite(scores)
    shares = torch.softmax(torch.where(counts, adversarial * scores, scores), 1).detach().nan_to_num(0)
    kept = torch.where(counts, scores, torch.zeros(()).double())
    return weight * (shares * softplus(kept + margin)).sum()


@pytest.mark.parametrize("width", [1, 5, 63, 64, 65, 200, 1000])
@pytest.mark.parametrize("spread", [0.1, 3.0, 40.0])
@pytest.mark.parametrize(("margin", "adversarial"), [(0.0, 0.0), (2.5, 0.0), (9.0, 1.0), (-1.0, 0.3)])
def test_loss_and_gradient(width: int, spread: float, margin: float, adversarial: float) -> None:
    generator = torch.Generator().manual_seed(width)
    scores = spread * torch.randn(9, width, generator=generator)
    scores[2, width // 2] = scores[4, -1] = -torch.inf
    exact = scores.double().requires_grad_()
    wanted = plain(exact, 0.7, margin, adversarial)
    (gradient,) = torch.autograd.grad(wanted, exact)
    for kind in (torch.float32, torch.float64):
        found = scores.to(kind, copy=True)
        loss = false_loss_(found, 0.7, margin, adversarial)
        assert loss == pytest.approx(float(wanted.detach()), rel=2e-5, abs=1e-6)
        torch.testing.assert_close(found.double(), gradient.nan_to_num(0), rtol=3e-5, atol=1e-7)


@pytest.mark.parametrize("adversarial", [0.0, 1.0])
def test_a_row_without_any_score_is_nothing(adversarial: float) -> None:
    scores = torch.full((2, 70), -torch.inf)
    scores[1] = 1.0
    assert false_loss_(scores, 1.0, 0.0, adversarial) == pytest.approx(float(softplus(torch.tensor(1.0))), rel=1e-5)
    assert not scores[0].any()
    torch.testing.assert_close(scores[1], torch.full((70,), torch.tensor(1.0).sigmoid().item() / 70))


@pytest.mark.parametrize("half", [1, 7, 33, 64, 100, 250])
@pytest.mark.parametrize("conjugate", [False, True])
@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_products_of_complex_rows(half: int, conjugate: bool, kind: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(half)
    a, b = torch.randn(2, 13, 2 * half, generator=generator, dtype=kind)
    other = torch.complex(*b.chunk(2, 1))
    expected = torch.complex(*a.chunk(2, 1)) * (other.conj() if conjugate else other)
    made = complex_products(a, b, conjugate=conjugate)
    torch.testing.assert_close(made, torch.cat([expected.real, expected.imag], 1))


def test_gradients_come_from_torch_where_they_are_asked_for() -> None:
    a, b = (torch.randn(3, 8, dtype=torch.float64, requires_grad=True) for _ in range(2))
    assert torch.autograd.gradcheck(complex_products, (a, b))
    complex_products(a.float().detach().requires_grad_(), b.float()).sum().backward()


def test_odd_widths_and_unlike_rows_are_refused() -> None:
    with pytest.raises(AssertionError, match="two columns"):
        complex_products(torch.zeros(2, 3), torch.zeros(2, 3))
    with pytest.raises(AssertionError, match="rows"):
        complex_products(torch.zeros(2, 4), torch.zeros(3, 4))
