"""Batch norm, ReLU and dropout in one pass against torch's operations in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from models.kernels.dense.batch_norm import Running, batch_norm, reference_batch_norm
from models.kernels.dense.dropout import dropout
from models.layers.layer import Activation, BatchNorm, Dropout, FusedSequential, normalise
from tests.kernels.graphs import assert_threads_do_not_matter, compare, numbers

KEY = 11


def fresh(width: int, kind: torch.dtype = torch.float32) -> Running:
    return Running(torch.zeros(width, dtype=kind), torch.ones(width, dtype=kind), 0.1)


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("rows", "width"), [(2, 1), (33, 64), (131, 300), (129, 67), (5001, 20)])
@pytest.mark.parametrize(("relu", "rate"), [(False, 0.0), (True, 0.0), (False, 0.3), (True, 0.3)])
def test_values_and_gradients(rows: int, width: int, relu: bool, rate: float, kind: torch.dtype) -> None:
    x = numbers(rows, width, dtype=kind)
    weight, bias = numbers(width, seed=2), numbers(width, seed=3)
    kept = dropout(torch.ones(rows, width), rate, key=KEY) if rate else torch.ones(rows, width)

    def fast(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return batch_norm(x, weight, bias, fresh(width), relu=relu, rate=rate, key=KEY)

    def exact(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return reference_batch_norm(x, weight, bias, fresh(width, torch.float64), relu=relu) * kept

    # In two rows all is decided by which number is the larger, and the gradient is what is left of sums that cancel.
    compare(fast, exact, x, weight, bias, slack=2.0 if rows > 2 else 30.0)


@pytest.mark.parametrize("rows", [2, 130, 3001])
def test_running_statistics_move_as_torch_s_do(rows: int) -> None:
    x, running, other = numbers(rows, 70).detach() * 3 + 5, fresh(70), fresh(70)
    for _ in range(2):
        batch_norm(x, torch.ones(70), torch.zeros(70), running)
        reference_batch_norm(x, torch.ones(70), torch.zeros(70), other)
    torch.testing.assert_close(running, other)


def test_columns_far_from_zero_lose_nothing() -> None:
    x = numbers(2000, 66).detach() + 1000
    y = batch_norm(x, torch.ones(66), torch.zeros(66), fresh(66))
    expected = reference_batch_norm(
        x.double(), *(make(66).double() for make in (torch.ones, torch.zeros)), fresh(66, torch.float64)
    )
    torch.testing.assert_close(y, expected.float(), rtol=1e-3, atol=1e-3)


def test_sums_do_not_depend_on_the_number_of_threads() -> None:
    x, weight, bias = numbers(9001, 70), numbers(70, seed=2), numbers(70, seed=3)

    def run() -> tuple[Tensor, ...]:
        y = batch_norm(x, weight, bias, fresh(70), relu=True, rate=0.5, key=KEY)
        return y, *torch.autograd.grad(y.square().sum(), (x, weight, bias))

    assert_threads_do_not_matter(run)


def test_modules_draw_and_learn_as_one_after_the_other() -> None:
    x = numbers(50, 30).detach()
    kinds = (Activation("relu", 0.5), Activation("relu"), Activation("elu", 0.5), Dropout(0.5), nn.Identity())
    for activation in kinds:
        for training in (True, False):
            joined, single = BatchNorm(30), nn.BatchNorm1d(30)
            for norm in (joined, single):
                nn.init.normal_(norm.weight, generator=torch.Generator().manual_seed(1))
                norm.train(training)
            activation.train(training)
            torch.manual_seed(3)
            y = normalise(joined, activation, x)
            torch.manual_seed(3)
            stacked = FusedSequential(joined, activation)(x)
            torch.manual_seed(3)
            expected = activation(single(x))
            if training:
                single(x)
            torch.testing.assert_close(y, expected)
            torch.testing.assert_close(stacked, expected)
            torch.testing.assert_close(joined.state_dict(), single.state_dict())


def test_float64_goes_through_torch_and_other_shapes_are_refused() -> None:
    ones, zeros = torch.ones(4), torch.zeros(4)
    x = numbers(5, 4)
    wide = [values.double() for values in (x, ones, zeros)]
    assert batch_norm(*wide, fresh(4, torch.float64), relu=True).dtype == torch.float64
    for given, rate, message in (
        ((x, torch.ones(3), zeros), 0.0, r"weight must be \(4,\), not \(3,\)"),
        ((x[:1], ones, zeros), 0.0, "two rows at least, not 1"),
        ((x, ones, zeros), 1.0, r"below 1, not 1\.0"),
    ):
        with pytest.raises(ValueError, match=message):
            batch_norm(*given, fresh(4), rate=rate)
