"""ReLU, ELU and dropout: how much is kept, of which elements, and the gradients."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from models.kernels.dense.dropout import dropout, elu_dropout, relu_dropout
from tests.kernels.graphs import numbers

SIZE = 200_003
"""Not a multiple of anything."""


def kept(rate: float, key: int, size: int = SIZE) -> Tensor:
    return dropout(torch.ones(size), rate, key=key) != 0


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_the_share_that_is_kept(rate: float) -> None:
    y = dropout(torch.ones(SIZE), rate, key=1)
    deviation = (rate * (1 - rate) / SIZE) ** 0.5
    assert abs(float((y != 0).double().mean()) - (1 - rate)) < 4 * deviation
    assert torch.equal(y.unique(), torch.tensor([0, 1 / (1 - rate)]))


def test_bits_are_independent_of_their_neighbours_and_of_other_keys() -> None:
    bits = kept(0.5, 7).double()
    others = [bits.roll(shift) for shift in (1, 2, 16, 64, 256)] + [kept(0.5, key).double() for key in (8, 7 << 32, 1)]
    for other in others:
        assert abs(float(((bits - 0.5) * (other - 0.5)).mean())) < 4 * 0.25 / SIZE**0.5


def test_columns_are_dropped_alike() -> None:
    share = kept(0.3, 5, 1 << 18).view(-1, 256).double().mean(0)
    assert float((share - 0.7).abs().max()) < 5 * (0.21 / 1024) ** 0.5


def test_the_key_comes_from_torch_s_generator() -> None:
    x = torch.ones(1000)
    torch.manual_seed(3)
    first, second = relu_dropout(x, 0.5), relu_dropout(x, 0.5)
    torch.manual_seed(3)
    assert torch.equal(relu_dropout(x, 0.5), first)
    assert not torch.equal(first, second)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_values_and_gradients(dtype: torch.dtype) -> None:
    x = numbers(33, 31, dtype=dtype)
    keep = kept(0.3, 11, x.numel()).view(x.shape)
    change = numbers(33, 31, seed=2).detach().to(dtype)
    exact = x.detach().double().requires_grad_()
    zeros = torch.zeros(1000, requires_grad=True)
    assert torch.equal(torch.autograd.grad(dropout(zeros, 0.5, key=2).sum(), zeros)[0] != 0, kept(0.5, 2, 1000))
    tolerance = 1e-2 if dtype == torch.bfloat16 else 1e-6
    for y, expected, near in (
        (relu_dropout(x, 0.3, key=11), exact.relu() * keep / 0.7, 0),
        (
            elu_dropout(x, 0.3, key=11),
            F.elu(exact) * keep / 0.7,
            3 * tolerance,
        ),  # y + s is near 0 for numbers far below
        (elu_dropout(x.t(), 0.3, key=11).t(), (F.elu(exact.t()) * keep.view(31, 33)).t() / 0.7, 3 * tolerance),
        (dropout(x, 0.3, key=11), exact * keep / 0.7, 0),
    ):
        torch.testing.assert_close(y.double(), expected, rtol=tolerance, atol=0)
        (gradient,) = torch.autograd.grad(y, x, change)
        (exact_gradient,) = torch.autograd.grad(expected, exact, change.double())
        torch.testing.assert_close(gradient.double(), exact_gradient, rtol=tolerance, atol=near)


def test_threads_change_nothing(threads: int) -> None:
    bits = kept(0.5, 9)
    assert bits.nonzero()[:5].flatten().tolist() == [1, 3, 5, 6, 7]  # of this key, for good: runs are resumed
    assert int(bits.sum()) == 99_820


@pytest.mark.parametrize("function", [relu_dropout, elu_dropout])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])  # by the kernel, and by torch's own functions
def test_in_place(dtype: torch.dtype, function: Callable[..., Tensor]) -> None:
    x = numbers(40, 30).detach().to(dtype).requires_grad_()
    rows = x * 1
    torch.manual_seed(0)
    y = function(rows, 0.5, inplace=True)
    assert (y.data_ptr() == rows.data_ptr()) == (dtype == torch.float32)
    torch.manual_seed(0)
    expected = function(x, 0.5)
    assert torch.equal(y, expected)
    near = 1e-15 if function is elu_dropout and dtype == torch.float64 else 0  # torch's gradient of another tensor
    gradients = [torch.autograd.grad(each.sum(), x)[0] for each in (y, expected)]
    torch.testing.assert_close(*gradients, rtol=0, atol=near)
    with pytest.raises(ValueError, match="contiguous"):
        dropout((numbers(4, 3) * 1).t(), 0.5, inplace=True)


def test_rows_that_are_not_contiguous() -> None:
    x = numbers(40, 30)
    assert torch.equal(dropout(x.t(), 0.5, key=4), dropout(x.t().contiguous(), 0.5, key=4))
    y = relu_dropout(x, 0.5, key=4)
    (gradient,) = torch.autograd.grad(y.t().sum(), x)
    assert torch.equal(gradient, 2 * (y > 0))


def test_nothing_is_dropped_in_evaluation_or_at_rate_0() -> None:
    x = numbers(40, 30)
    assert torch.equal(relu_dropout(x, 0.5, training=False), x.relu())
    assert torch.equal(relu_dropout(x, 0.0), x.relu())
    assert torch.equal(dropout(x, 0.5, training=False), x)


def test_other_types_go_through_torch_and_wrong_rates_are_refused() -> None:
    y = relu_dropout(torch.ones(10_000, dtype=torch.float64), 0.5)
    assert 0.45 < float((y == 2).double().mean()) < 0.55
    with pytest.raises(ValueError, match="rate"):
        dropout(torch.ones(3), 1.0)


@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (0, 0), (0,)])
def test_nothing(shape: tuple[int, ...]) -> None:
    for drop in (dropout, relu_dropout):
        x = torch.zeros(shape, requires_grad=True)
        drop(x, 0.5).sum().backward()  # type: ignore[operator]
        assert x.grad is not None
